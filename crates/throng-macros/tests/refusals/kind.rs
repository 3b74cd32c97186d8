//! The name of a kind.

use throng_durable::Durable;

#[derive(Durable)]
struct Nameless;

#[derive(Durable)]
#[durable(version = 2)]
struct OnlyVersion;

#[derive(Durable)]
#[durable(kind = "")]
struct Empty;

#[derive(Durable)]
#[durable(kind = "a name that is longer than sixty-four bytes, which is more than is allowed")]
struct Long;

#[derive(Durable)]
#[durable(kind = account)]
struct Unquoted;

fn main() {}
