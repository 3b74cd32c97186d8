//! Finds borrows in a type: values that go from process to process must be owned.

use syn::visit::{self, Visit};
use syn::{
    Error, Lifetime, ParenthesizedGenericArguments, Type, TypeFnPtr, TypeImplTrait, TypeReference,
};

/// The role of a type in a message, which selects the text of an error.
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
                "a message outlives its sender's borrow: take an owned value, such as `String` for \
                 `&str`, or share the value in an `Arc`"
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
                "`impl Trait` is not allowed in a message's field: use a named type, a boxed trait \
                 object, or a type parameter of the `impl` block"
            }
            Role::Reply => {
                "`impl Trait` is not allowed in a reply: use a named type or a boxed trait object; \
                 for a future, write an `async fn` that returns its output"
            }
        };
        self.report(Error::new_spanned(ty, text));
    }

    // The parameters and results of a function pointer are not part of the message.
    fn visit_type_fn_ptr(&mut self, _: &'a TypeFnPtr) {}
    fn visit_parenthesized_generic_arguments(&mut self, _: &'a ParenthesizedGenericArguments) {}
}
