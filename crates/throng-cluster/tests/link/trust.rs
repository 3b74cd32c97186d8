//! Certificates: those that a node takes from its files, and those that it takes from its peers.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;

use throng_cluster::link::frame::Frame;
use throng_cluster::link::{CallError, Identity, IdentityError, Options, Target};

use crate::support::{Ca, Certificate, Node, PATIENCE, Trap, dial, hello, load, write};

/// A client with this certificate, or none, gets no word out of a node.
async fn is_refused_by_the_node_that_serves(ca: &Ca, certificate: Option<&Certificate>) {
    let node = Node::start(ca, 1, Options::default()).await;
    // In TLS 1.3 the client has finished before the server looks at its certificate.
    if let Ok(mut raw) = dial(&node.target, ca, certificate).await {
        raw.send(&Frame::Hello(hello(2))).await;
        raw.request(1, "hi", PATIENCE).await;
        assert_eq!(raw.next().await, None);
    }
    node.until(|stats| stats.handshakes_failed == 1).await;
    assert_eq!(node.service.begun.load(Ordering::SeqCst), 0);
    let good = Node::start(ca, 2, Options::default()).await;
    assert_eq!(good.call(&node.target, "hi").await.unwrap(), "hi");
}

/// A node does not send its request to a server with this certificate.
async fn is_refused_by_the_node_that_asks(ca: &Ca, certificate: &Certificate) {
    let (node, trap) = (Node::start(ca, 1, Options::default()).await, Trap::new(certificate).await);
    let call = node.spawn_call(&trap.target, "hi", PATIENCE);
    assert!(trap.accept(hello(77)).await.is_err());
    assert!(matches!(call.await.unwrap(),
        Err(CallError::Unreachable { request, reason }) if request == "hi" && reason.contains("certificate")));
}

#[tokio::test]
async fn a_peer_without_a_certificate_is_refused() {
    is_refused_by_the_node_that_serves(&Ca::new(), None).await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused_on_both_sides() {
    let (ca, certificate) = (Ca::new(), Ca::new().issue("shop"));
    is_refused_by_the_node_that_serves(&ca, Some(&certificate)).await;
    is_refused_by_the_node_that_asks(&ca, &certificate).await;
}

#[tokio::test]
async fn a_certificate_of_another_cluster_under_the_same_authority_is_refused_on_both_sides() {
    let ca = Ca::new();
    let certificate = ca.issue("bank");
    is_refused_by_the_node_that_serves(&ca, Some(&certificate)).await;
    is_refused_by_the_node_that_asks(&ca, &certificate).await;
}

#[tokio::test]
async fn an_expired_certificate_is_refused_on_both_sides() {
    let ca = Ca::new();
    let certificate = ca.issue_until("shop", 2020);
    is_refused_by_the_node_that_serves(&ca, Some(&certificate)).await;
    is_refused_by_the_node_that_asks(&ca, &certificate).await;
}

#[test]
fn files_that_peers_would_refuse_or_strangers_could_read_are_not_loaded() {
    let (ca, directory) = (Ca::new(), tempfile::tempdir().unwrap());
    let good = ca.issue("shop");
    for bad in [ca.issue_until("shop", 2020), ca.issue("bank"), Ca::new().issue("shop")] {
        assert!(matches!(load(&ca, &bad, "shop"), Err(IdentityError::Unfit { .. })));
    }
    let foreign = Certificate { key: ca.issue("shop").key, ..ca.issue("shop") };
    assert!(matches!(load(&ca, &foreign, "shop"), Err(IdentityError::Unmatched { .. })));
    let damaged = Certificate { cert: "no certificate".to_owned(), ..ca.issue("shop") };
    assert!(matches!(load(&ca, &damaged, "shop"), Err(IdentityError::Damaged { .. })));
    for name in ["", "Shop", "a.b", "-a", "a-", "ä"] {
        assert!(matches!(load(&ca, &good, name), Err(IdentityError::Name(_))), "{name}");
    }
    let files = write(directory.path(), &ca, &good);
    fs::set_permissions(&files.key, Permissions::from_mode(0o644)).unwrap();
    let error = Identity::load(files.clone(), "shop").unwrap_err();
    assert!(error.to_string().ends_with("set its mode to 600 or 640"), "{error}");
    fs::set_permissions(&files.key, Permissions::from_mode(0o640)).unwrap();
    assert!(Identity::load(files, "shop").is_ok());
}

#[tokio::test]
async fn certificates_that_are_loaded_again_are_those_of_later_connections() {
    let (old, new, directory) = (Ca::new(), Ca::new(), tempfile::tempdir().unwrap());
    let files = write(directory.path(), &old, &old.issue("shop"));
    let identity = Identity::load(files.clone(), "shop").unwrap();
    let node = Node::start_at("127.0.0.1:0", identity.clone(), 1, Options::default()).await;
    let before = Node::start(&old, 2, Options::default()).await;
    assert_eq!(before.call(&node.target, "one").await.unwrap(), "one");

    fs::write(&files.cert, "damaged").unwrap();
    assert!(identity.reload().is_err());
    let meanwhile = Node::start(&old, 3, Options::default()).await;
    assert_eq!(meanwhile.call(&node.target, "two").await.unwrap(), "two");

    write(directory.path(), &new, &new.issue("shop"));
    identity.reload().unwrap();
    let late = Node::start(&old, 4, Options::default()).await;
    let refused = late.call(&node.target, "three").await;
    assert!(matches!(refused, Err(CallError::Unreachable { .. })), "{refused:?}");
    let after = Node::start(&new, 5, Options::default()).await;
    assert_eq!(after.call(&node.target, "four").await.unwrap(), "four");
    // The connection of before is as good as it was, and what the node dials has its new certificate as well.
    assert_eq!(before.call(&node.target, "five").await.unwrap(), "five");
    assert_eq!(before.links.stats().dials, 1);
    let to = Target { address: after.target.address.clone(), ..after.target };
    assert_eq!(node.call(&to, "six").await.unwrap(), "six");
}
