//! Finds what a type borrows: what goes from process to process must own itself.

use syn::visit::{self, Visit};
use syn::{
    Error, Lifetime, ParenthesizedGenericArguments, Type, TypeFnPtr, TypeImplTrait, TypeReference,
};

/// What a type is for, in the words of a complaint about it.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Argument,
    Reply,
}

/// Refuses a type that borrows or has no name.
pub(crate) fn refuse(ty: &Type, role: Role) -> syn::Result<()> {
    let mut finder = BorrowFinder { role, found: None };
    finder.visit_type(ty);
    finder.found.map_or(Ok(()), Err)
}

struct BorrowFinder {
    role: Role,
    found: Option<Error>,
}

impl BorrowFinder {
    fn report(&mut self, error: Error) {
        self.found.get_or_insert(error);
    }

    fn is_static(lifetime: &Lifetime) -> bool {
        lifetime.ident == "static"
    }
}

impl<'a> Visit<'a> for BorrowFinder {
    fn visit_type_reference(&mut self, reference: &'a TypeReference) {
        if reference.lifetime.as_ref().is_some_and(BorrowFinder::is_static) {
            return visit::visit_type_reference(self, reference);
        }
        let text = match self.role {
            Role::Argument => {
                "a message outlives its sender's borrow: take what it carries by value, as `String` \
                 for `&str`, or share it as an `Arc`"
            }
            Role::Reply => {
                "a reply leaves the process and cannot borrow from it: return an owned value"
            }
        };
        self.report(Error::new_spanned(reference, text));
    }

    fn visit_lifetime(&mut self, lifetime: &'a Lifetime) {
        if !BorrowFinder::is_static(lifetime) {
            let text = match self.role {
                Role::Argument => "a message outlives any lifetime but `'static`",
                Role::Reply => "a reply outlives any lifetime but `'static`",
            };
            self.report(Error::new_spanned(lifetime, text));
        }
    }

    fn visit_type_impl_trait(&mut self, ty: &'a TypeImplTrait) {
        let text = match self.role {
            Role::Argument => {
                "a message's field needs a type with a name: name it, box it, or make it a type \
                 parameter of the `impl` block"
            }
            Role::Reply => {
                "a reply needs a type with a name: name it or box it; \
                 for a future, write `async fn` and its output"
            }
        };
        self.report(Error::new_spanned(ty, text));
    }

    // What a function takes and returns is its own affair.
    fn visit_type_fn_ptr(&mut self, _: &'a TypeFnPtr) {}
    fn visit_parenthesized_generic_arguments(&mut self, _: &'a ParenthesizedGenericArguments) {}
}
