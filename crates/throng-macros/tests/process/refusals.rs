//! Wrong uses: the compiler's errors, and the code they point at.

/// `TRYBUILD=overwrite cargo test -p throng-macros refusals` regenerates the expectations.
#[test]
#[cfg_attr(miri, ignore = "runs the compiler")]
fn wrong_uses_are_explained_where_they_stand() {
    trybuild::TestCases::new().compile_fail("tests/refusals/*.rs");
}
