//! A hook: a method of the block that `impl Process` calls.

use crate::attributes::{self, Carried};
use crate::message::{is_context, is_shared, receiver};
use crate::process::Block;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Attribute, Error, FnArg, Ident, ImplItemFn, ReturnType};

/// Name of a hook and its argument beside the context.
type KnownHook = (&'static str, Option<HookArgument>);

/// Type of a hook's argument, by its name in throng.
#[derive(Clone, Copy)]
struct HookArgument {
    ty: &'static str,
    by_reference: bool,
}

const HOOKS: &[KnownHook] = &[
    ("started", None),
    ("stopping", Some(HookArgument { ty: "ExitReason", by_reference: true })),
    ("down", Some(HookArgument { ty: "Down", by_reference: false })),
    ("exit", Some(HookArgument { ty: "Exit", by_reference: false })),
    ("timeout", None),
];

/// A method marked `#[hook]`.
pub(crate) struct Hook {
    pub(crate) name: Ident,
    carried: Carried,
    is_async: bool,
    argument: Option<HookArgument>,
    /// For each parameter after the receiver, in order: whether it is the context rather than the
    /// hook's argument.
    is_context: Vec<bool>,
}

impl Hook {
    /// Reads the method.
    ///
    /// # Errors
    /// If the method cannot be a hook.
    pub(crate) fn read(attribute: &Attribute, method: &ImplItemFn) -> syn::Result<Hook> {
        if !matches!(attribute.meta, syn::Meta::Path(_)) {
            return Err(Error::new_spanned(attribute, "`#[hook]` has no options"));
        }
        let signature = &method.sig;
        let name = &signature.ident;
        let Some(&(_, argument)) = HOOKS.iter().find(|(hook, _)| name == hook) else {
            let hooks: Vec<_> = HOOKS.iter().map(|(hook, _)| format!("`{hook}`")).collect();
            let text = format!("no hook is called `{name}`; the hooks are {}", hooks.join(", "));
            return Err(Error::new_spanned(name, text));
        };
        is_shared(receiver(signature.inputs.first(), name)?)?;
        if let ReturnType::Type(_, ty) = &signature.output
            && !matches!(&**ty, syn::Type::Tuple(tuple) if tuple.elems.is_empty())
        {
            return Err(Error::new_spanned(
                ty,
                "a hook returns `()`: no caller waits for its result",
            ));
        }
        let mut contexts = Vec::new();
        for input in signature.inputs.iter().skip(1) {
            let FnArg::Typed(parameter) = input else { continue };
            let is_context = is_context(&parameter.ty);
            if contexts.contains(&is_context) || !(is_context || argument.is_some()) {
                let text = match argument {
                    Some(HookArgument { ty, by_reference }) => {
                        let ty = if by_reference { format!("&{ty}") } else { ty.to_owned() };
                        format!(
                            "the hook `{name}` takes `{ty}` and `&mut Context<Self>`, each at \
                             most once, and no other argument"
                        )
                    }
                    None => format!(
                        "the hook `{name}` takes `&mut Context<Self>`, at most once, and no \
                         other argument"
                    ),
                };
                return Err(Error::new_spanned(parameter, text));
            }
            contexts.push(is_context);
        }
        Ok(Hook {
            name: name.clone(),
            carried: Carried::of(&method.attrs),
            is_async: signature.asyncness.is_some(),
            argument,
            is_context: contexts,
        })
    }

    /// Returns the method of `impl Process` that calls the user's.
    pub(crate) fn expand(&self, block: &Block) -> TokenStream {
        let Hook { name, carried, .. } = self;
        let krate = &block.krate;
        let conditions = &carried.conditions;
        let span = name.span();
        let cx = Ident::new("cx", Span::mixed_site());
        let argument = Ident::new("argument", Span::mixed_site());
        let parameter = self.argument.map(|HookArgument { ty, by_reference }| {
            let ty = Ident::new(ty, Span::mixed_site());
            let reference = by_reference.then(|| quote!(&));
            quote!(#argument: #reference #krate::#ty,)
        });
        let arguments = self.is_context.iter().map(|&is_context| {
            if is_context { cx.to_token_stream() } else { argument.to_token_stream() }
        });
        let call = quote_spanned!(span=> Self::#name(self, #(#arguments),*));
        let unused = self.unused(&cx, &argument);
        if self.is_async {
            let future = quote_spanned!(span=> impl ::core::future::Future<Output = ()> + ::core::marker::Send);
            quote! {
                #(#conditions)*
                fn #name(&mut self, #parameter #cx: &mut #krate::Context<Self>) -> #future {
                    #unused
                    #call
                }
            }
        } else {
            quote! {
                #(#conditions)*
                async fn #name(&mut self, #parameter #cx: &mut #krate::Context<Self>) {
                    #unused
                    #call
                }
            }
        }
    }

    /// Discards the variables that the user's method does not take.
    fn unused(&self, cx: &Ident, argument: &Ident) -> TokenStream {
        let cx = (!self.is_context.contains(&true)).then(|| quote!(let _ = #cx;));
        let argument = (self.argument.is_some() && !self.is_context.contains(&false))
            .then(|| quote!(let _ = #argument;));
        quote!(#cx #argument)
    }
}

/// Takes the attribute `#[hook]` off the method, if it is there.
pub(crate) fn attribute(method: &mut ImplItemFn) -> syn::Result<Option<Attribute>> {
    attributes::take(&mut method.attrs, "hook")
}

#[cfg(test)]
mod tests {
    use super::HOOKS;
    use syn::{Item, TraitItem};

    #[test]
    fn every_hook_of_a_process_is_known() {
        let file = syn::parse_file(include_str!("../../throng/src/turn/process.rs")).unwrap();
        let process = file.items.iter().find_map(|item| match item {
            Item::Trait(process) if process.ident == "Process" => Some(process),
            _ => None,
        });
        let mut hooks: Vec<String> = process
            .unwrap()
            .items
            .iter()
            .filter_map(|item| match item {
                TraitItem::Fn(hook) => Some(hook.sig.ident.to_string()),
                _ => None,
            })
            .collect();
        assert!(hooks.contains(&"started".to_owned()));
        hooks.retain(|hook| !HOOKS.iter().any(|(known, _)| known == hook));
        assert!(hooks.is_empty(), "add to HOOKS: {hooks:?}");
    }
}
