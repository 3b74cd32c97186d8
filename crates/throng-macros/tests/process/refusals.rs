//! Wrong uses: what the compiler says, and where it points.

/// `TRYBUILD=overwrite cargo test -p throng-macros refusals` writes the expectations anew.
#[test]
#[cfg_attr(miri, ignore = "runs the compiler")]
fn wrong_uses_are_explained_where_they_stand() {
    trybuild::TestCases::new().compile_fail("tests/refusals/*.rs");
}
