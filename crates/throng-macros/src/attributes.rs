//! Attributes: finding this crate's attributes, and copying others to the generated items.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Attribute, Error, Path};

/// Expands `#[message]` or `#[hook]` on an item outside a `#[process]` block: an error.
pub(crate) fn outside(name: &str, item: TokenStream) -> TokenStream {
    let text = format!(
        "`#[{name}]` belongs on a method of an `impl` block with the attribute `#[process]`; \
         add `#[process]` to the block"
    );
    let error = Error::new(Span::call_site(), text).into_compile_error();
    quote!(#error #item)
}

/// Whether `path` names this crate's attribute `name`, alone or as `throng::name`.
pub(crate) fn is_ours(path: &Path, name: &str) -> bool {
    path.segments.len() <= 2 && path.segments.last().is_some_and(|last| last.ident == name)
}

/// Takes this crate's attribute `name` out of `attributes`.
///
/// # Errors
/// If the attribute occurs twice.
pub(crate) fn take(attributes: &mut Vec<Attribute>, name: &str) -> syn::Result<Option<Attribute>> {
    let mut taken = attributes.extract_if(.., |attribute| is_ours(attribute.path(), name));
    let first = taken.next();
    match taken.next() {
        Some(second) => Err(Error::new_spanned(second, format!("duplicate attribute `#[{name}]`"))),
        None => Ok(first),
    }
}

/// Attributes of an item that also hold for the items generated from it.
#[derive(Clone, Default)]
pub(crate) struct Carried {
    /// Conditions under which the item exists.
    pub(crate) conditions: Vec<Attribute>,
    /// Documentation and deprecation of the item.
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

    /// Returns the notes, with `otherwise` as the documentation if they have none.
    pub(crate) fn notes_or(&self, otherwise: &str) -> TokenStream {
        let notes = &self.notes;
        if notes.iter().any(|note| note.path().is_ident("doc")) {
            quote!(#(#notes)*)
        } else {
            quote!(#(#notes)* #[doc = #otherwise])
        }
    }
}
