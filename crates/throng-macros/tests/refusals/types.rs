//! Types that cannot be the state of an entity.

use throng_durable::Durable;

#[derive(Durable)]
#[durable(kind = "union")]
union Union {
    byte: u8,
    sign: i8,
}

#[derive(Durable)]
#[durable(kind = "cache")]
struct Cache<K, const N: usize>([K; N]);

#[derive(Durable)]
struct Borrows<'a>(&'a str);

fn main() {}
