//! The looks of a page in a browser: its theme and size, its keyboard, pictures of it in the target directory, and the check of its
//! accessibility by axe-core.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::webdriver::Browser;

/// Width and height of a small phone.
pub(crate) const PHONE: (u32, u32) = (360, 740);

/// Returns the text of axe-core.
pub(crate) fn axe() -> String {
    let path = std::env::var("THRONG_AXE").expect(
        "THRONG_AXE names the file axe.min.js of the npm package axe-core; `cargo xtask test browser` installs it",
    );
    fs::read_to_string(path).unwrap()
}

/// Gives the page a size; one of a width of [`PHONE`] is shown as on a phone.
pub(crate) async fn set_size(browser: &Browser, (width, height): (u32, u32)) {
    let is_phone = width == PHONE.0;
    let size =
        json!({ "width": width, "height": height, "deviceScaleFactor": 1.5, "mobile": is_phone });
    browser.chromium("Emulation.setDeviceMetricsOverride", size).await;
}

/// Makes the system's theme `light` or `dark`.
pub(crate) async fn set_theme(browser: &Browser, theme: &str) {
    let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
    browser.chromium("Emulation.setEmulatedMedia", json!({ "features": features })).await;
}

/// Presses a key, by its code in the WebDriver standard.
pub(crate) async fn press(browser: &Browser, key: &str) {
    let press = ["keyDown", "keyUp"].map(|action| json!({ "type": action, "value": key }));
    let keyboard = json!({ "type": "key", "id": "keyboard", "actions": press });
    browser.command("/actions", json!({ "actions": [keyboard] })).await;
}

/// Saves a picture as `folder`/`name`.png: of the part that is in view, or of the whole page.
pub(crate) async fn save_picture(browser: &Browser, folder: &str, name: &str, is_whole: bool) {
    let parameters = json!({ "captureBeyondViewport": is_whole });
    let shot = browser.chromium("Page.captureScreenshot", parameters).await;
    let picture = STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{name}.png")), picture).unwrap();
}

/// Expects that nothing is cut off at the sides of the page, a card or a list of figures, and that axe-core finds nothing serious.
pub(crate) async fn expect_accessible(browser: &Browser, axe: &str, name: &str) {
    let wide = "return [document.documentElement, ...document.querySelectorAll('.card, .card dl')]\
                .filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.textContent)";
    assert_eq!(browser.run(wide).await, json!([]), "{name}: something is cut off");
    browser.run(axe).await;
    let script = "return axe.run(document).then(({ violations, passes }) => ({ passes: passes.length,\
         bad: violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')\
         .map(({ id, nodes }) => [id, ...nodes.slice(0, 5).map(({ html }) => html)]) }))";
    let found: Value = browser.run(script).await;
    assert_eq!(found["bad"], json!([]), "{name}");
    let passes = found["passes"].as_u64().unwrap();
    assert!(passes > 5, "{name}: axe has checked nothing: {found}");
}
