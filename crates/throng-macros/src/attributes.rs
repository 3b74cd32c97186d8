//! Attributes: finding our own, and carrying others over to what is generated.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Attribute, Error, Path};

/// The expansion of `#[message]` or `#[hook]` where no `#[process]` has taken it away.
pub(crate) fn outside(name: &str, item: TokenStream) -> TokenStream {
    let text = format!(
        "`#[{name}]` belongs on a method of an `impl` block that is marked `#[process]`; \
         is that attribute missing?"
    );
    let error = Error::new(Span::call_site(), text).into_compile_error();
    quote!(#error #item)
}

/// Whether `path` names our attribute `name`, alone or as `throng::name`.
pub(crate) fn is_ours(path: &Path, name: &str) -> bool {
    path.segments.len() <= 2 && path.segments.last().is_some_and(|last| last.ident == name)
}

/// Takes our attribute `name` out of `attributes`.
///
/// # Errors
/// If it is there twice.
pub(crate) fn take(attributes: &mut Vec<Attribute>, name: &str) -> syn::Result<Option<Attribute>> {
    let mut taken = attributes.extract_if(.., |attribute| is_ours(attribute.path(), name));
    let first = taken.next();
    match taken.next() {
        Some(second) => Err(Error::new_spanned(second, format!("`#[{name}]` is here twice"))),
        None => Ok(first),
    }
}

/// Those attributes of an item that hold for whatever is made from it.
#[derive(Clone, Default)]
pub(crate) struct Carried {
    /// When it exists.
    pub(crate) conditions: Vec<Attribute>,
    /// What it says about itself: documentation and deprecation.
    pub(crate) notes: Vec<Attribute>,
}

impl Carried {
    pub(crate) fn of(attributes: &[Attribute]) -> Carried {
        let named = |names: &[&str]| {
            let is_named =
                |attribute: &&Attribute| names.iter().any(|name| attribute.path().is_ident(name));
            attributes.iter().filter(is_named).cloned().collect()
        };
        Carried { conditions: named(&["cfg"]), notes: named(&["doc", "deprecated"]) }
    }

    /// The notes, or `otherwise` as documentation if there is none.
    pub(crate) fn notes_or(&self, otherwise: &str) -> TokenStream {
        let notes = &self.notes;
        if notes.iter().any(|note| note.path().is_ident("doc")) {
            quote!(#(#notes)*)
        } else {
            quote!(#(#notes)* #[doc = #otherwise])
        }
    }
}
