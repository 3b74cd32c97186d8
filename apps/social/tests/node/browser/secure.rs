//! The page over TLS: its files, its requests and its socket.

use super::sign_up;
use crate::tls;
use crate::webdriver::Driver;

#[tokio::test]
#[ignore = "needs chromium and chromedriver"]
async fn the_page_is_live_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let profile = tempfile::tempdir().unwrap();
    let node = tls::start(directory.path());
    let driver = Driver::start();
    let browser = driver.open(profile.path().to_str().unwrap()).await;
    // Waits until the socket is open.
    sign_up(&browser, &node, "alice").await;
    assert_eq!(browser.run("return location.protocol").await, "https:");
    browser.fill("#text", "hello over TLS").await;
    browser.click("#write .primary").await;
    browser.wait_for_text("#posts", "hello over TLS").await;
    assert_eq!(browser.console().await, Vec::<String>::new());
    browser.close().await;
    node.signal("TERM").await;
    assert_eq!(node.wait().status.code(), Some(0));
}
