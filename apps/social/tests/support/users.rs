//! Users for the tests.

use futures_util::future::join_all;
use social::{HashedPassword, Name, Password, Social};
use tokio::sync::OnceCell;

/// Registers users with one password, hashed once by the program: a hash takes tens of milliseconds, and 19 MiB that
/// the allocator does not give back.
pub(crate) async fn register(social: &Social, names: &[impl ToString]) {
    static HASH: OnceCell<HashedPassword> = OnceCell::const_new();
    let make = async || social.hash(Password::new("correct horse").unwrap()).await.unwrap();
    let hash = HASH.get_or_init(make).await;
    join_all(names.iter().map(async |name| {
        let name: Name = name.to_string().parse().unwrap();
        social.register_hashed(&name, hash.clone()).await.unwrap();
    }))
    .await;
}
