//! Options of the derive that are wrong.

use throng_durable::Durable;

#[derive(Durable)]
#[durable(kind = "unknown", versoin = 2)]
struct Unknown;

#[derive(Durable)]
#[durable(kind = "zero", version = 0)]
struct Zero;

#[derive(Durable)]
#[durable(kind = "large", version = 65536)]
struct Large;

#[derive(Durable)]
#[durable(kind = "twice", version = 2, kind = "twice", version = 0)]
#[durable(version = 2)]
struct Twice;

#[derive(Durable)]
#[durable(kind = "first", migrate = from_nothing)]
struct First;

#[derive(Durable)]
#[durable(kind = "zero\0byte")]
struct ZeroByte;

#[derive(Durable)]
#[durable(kind = "doubled", deps = (), deps = u8, initial = new, initial = new)]
struct Doubled;

#[derive(Durable)]
#[durable]
struct NoList;

fn main() {}
