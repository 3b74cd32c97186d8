//! The typed client: methods for each message, on every handle of the process: an address, a
//! supervised child's handle, an entity.
//!
//! Handles are types of other crates, so methods on them need a trait. Its methods have default
//! bodies in terms of throng's trait `Client`, which all handles implement, so the generated code
//! is the same for one kind of handle and for all. All methods of a trait are as visible as the
//! trait, so each visibility has a trait of its own; in their own module all of the traits are in
//! scope.

use crate::message::{Field, MessageMethod, camel_case};
use crate::process::Block;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::{Error, Ident, Visibility, parse_quote};

/// Methods that an address has already. Its inherent methods would shadow a client's method of the
/// same name, and a client's method would shadow trait methods that take a reference.
const ADDRESS_METHODS: &[&str] = &[
    "ask",
    "borrow",
    "borrow_mut",
    "call",
    "clamp",
    "clone",
    "clone_from",
    "cmp",
    "deliver",
    "eq",
    "exit",
    "fmt",
    "from",
    "ge",
    "gt",
    "hash",
    "into",
    "is_alive",
    "kill",
    "le",
    "lt",
    "max",
    "min",
    "ne",
    "partial_cmp",
    "pid",
    "recipient",
    "send",
    "stop",
    "to_owned",
    "try_from",
    "try_into",
    "type_id",
];

/// Further methods that a supervised child's handle has already.
const CHILD_METHODS: &[&str] = &["address"];

/// Refuses a message with the name of an earlier message, or with a client method that exists
/// already.
pub(crate) fn refuse_collision(
    message: &MessageMethod,
    earlier: &[MessageMethod],
) -> syn::Result<()> {
    let method = &message.method;
    let names = client_names(message);
    for name in names.iter().map(|name| name.unraw().to_string()) {
        if ADDRESS_METHODS.contains(&name.as_str()) {
            let text = format!(
                "every address has a method `{name}` already: give this method another name"
            );
            return Err(Error::new_spanned(method, text));
        }
        if CHILD_METHODS.contains(&name.as_str()) {
            let text = format!(
                "the handle of a supervised child has a method `{name}` already: give this method \
                 another name"
            );
            return Err(Error::new_spanned(method, text));
        }
    }
    // Of two methods under a condition, the configuration may select one; rustc reports a clash.
    let is_certain = |message: &&MessageMethod| message.carried.conditions.is_empty();
    for other in earlier.iter().filter(|_| is_certain(&message)).filter(is_certain) {
        let theirs = client_names(other);
        let other_method = &other.method;
        if other.name == message.name {
            let text = format!(
                "the messages of `{other_method}` and `{method}` would both be called `{}`: \
                 rename one of them with `#[message(name = …)]`",
                message.name
            );
            return Err(Error::new_spanned(method, text));
        }
        if let Some(name) = names.iter().find(|name| theirs.contains(name)) {
            let text = format!(
                "`{other_method}` and `{method}` would both make the client method `{name}`: rename \
                 one of them"
            );
            return Err(Error::new_spanned(method, text));
        }
    }
    Ok(())
}

/// Refuses a message with the name of a client trait.
pub(crate) fn refuse_trait_name(
    message: &MessageMethod,
    messages: &[MessageMethod],
    block: &Block,
) -> syn::Result<()> {
    if group(messages, block).iter().all(|(name, ..)| *name != message.name) {
        return Ok(());
    }
    let MessageMethod { method, name, .. } = message;
    let text = format!(
        "the message of `{method}` would be called `{name}`, like the client trait: rename the \
         message with `#[message(name = …)]`, or the trait with `#[process(client = …)]`"
    );
    Err(Error::new_spanned(method, text))
}

/// Expands the client traits, each with its implementation for all handles of the process.
pub(crate) fn expand(messages: &[MessageMethod], block: &Block) -> TokenStream {
    let groups = group(messages, block);
    let traits =
        groups.iter().map(|(name, visibility, group)| expand_group(name, visibility, group, block));
    quote!(#(#traits)*)
}

/// Groups the messages by visibility, the widest first, each group with its trait's name.
fn group<'a>(
    messages: &'a [MessageMethod],
    block: &Block,
) -> Vec<(Ident, &'a Visibility, Vec<&'a MessageMethod>)> {
    let mut groups: Vec<(&Visibility, Vec<&MessageMethod>)> = Vec::new();
    for message in messages {
        match groups.iter_mut().find(|(visibility, _)| is_same(visibility, &message.visibility)) {
            Some((_, group)) => group.push(message),
            None => groups.push((&message.visibility, vec![message])),
        }
    }
    groups.sort_by_key(|(visibility, _)| width(visibility));
    let plain = block.client.clone().unwrap_or_else(|| format_ident!("{}Client", block.name));
    let named = groups.into_iter().enumerate().map(|(index, (visibility, group))| {
        let name = match index {
            0 => plain.clone(),
            _ => format_ident!("{plain}{}", suffix(visibility)),
        };
        (name, visibility, group)
    });
    named.collect()
}

fn expand_group(
    name: &Ident,
    visibility: &Visibility,
    messages: &[&MessageMethod],
    block: &Block,
) -> TokenStream {
    let Block { krate, self_ty: process, conditions, generics, .. } = block;
    let (parameters, arguments, clause) = generics.split_for_impl();
    let about = format!(
        "Messages of a `{0}` as methods of its [`Address`]({1}::Address), of the handle of a \
         supervised `{0}`, a [`Child`]({1}::Child), and of every other \
         [`Client`]({1}::client::Client).",
        block.name,
        path(krate)
    );
    let methods = messages.iter().flat_map(|message| expand_methods(message, block));
    // The user's parameters are in scope together with this one.
    let handle = Ident::new("HandleOfThrong", Span::mixed_site());
    let mut implementation = generics.clone();
    implementation.params.push(parse_quote!(#handle: #krate::client::Client<Process = #process>));
    let (implementation, ..) = implementation.split_for_impl();
    quote! {
        #(#conditions)*
        #[doc = #about]
        #[allow(dead_code, deprecated, private_interfaces, private_bounds, unreachable_pub)]
        #[allow(clippy::too_many_arguments, clippy::type_complexity, clippy::wrong_self_convention)]
        #visibility trait #name #parameters: #krate::client::Client<Process = #process> #clause {
            #(#methods)*
        }

        #(#conditions)*
        #[allow(deprecated)]
        impl #implementation #name #arguments for #handle #clause {}
    }
}

/// Expands the client's methods for a message: a call, or a question, and a send.
fn expand_methods(message: &MessageMethod, block: &Block) -> Vec<TokenStream> {
    let krate = &block.krate;
    let method = &message.method;
    let (ty, construction) = (message.ty(), message.construction());
    let client = quote!(#krate::client::Client);
    let parameters: Vec<TokenStream> =
        message.fields().map(|Field { name, ty, .. }| quote!(#name: #ty)).collect();
    let conditions = &message.carried.conditions;
    let notes = message.carried.notes_or(&format!("Calls `{method}` of the process."));
    let send = |name: &Ident, notes: TokenStream| {
        quote! {
            #(#conditions)*
            #notes
            fn #name(self, #(#parameters),*)
                -> ::core::result::Result<(), <Self as #client>::SendError<#ty>>
            {
                #client::send(self, #construction)
            }
        }
    };
    if message.is_only_sent {
        return vec![send(method, notes)];
    }
    let call = match message.question() {
        None => quote! {
            #(#conditions)*
            #notes
            fn #method(self, #(#parameters),*) -> <Self as #client>::Call<#ty> {
                #client::call(self, #construction)
            }
        },
        Some((question, answer)) => {
            let others = message.fields().filter(|field| field.name != question.name);
            let parameters = others.map(|Field { name, ty, .. }| quote!(#name: #ty));
            let variable = &question.name;
            quote! {
                #(#conditions)*
                #notes
                fn #method(self, #(#parameters),*)
                    -> <Self as #krate::client::AskClient>::Ask<#ty, #answer>
                where
                    Self: #krate::client::AskClient,
                {
                    #krate::client::AskClient::ask(self, move |#variable| #construction)
                }
            }
        }
    };
    let about = format!("Sends the message of [`{0}`](Self::{0}) without waiting.", method.unraw());
    vec![call, send(&send_name(method), quote!(#[doc = #about]))]
}

fn client_names(message: &MessageMethod) -> Vec<Ident> {
    let method = message.method.clone();
    if message.is_only_sent {
        return vec![method];
    }
    let send = send_name(&method);
    vec![method, send]
}

fn send_name(method: &Ident) -> Ident {
    format_ident!("send_{}", method.unraw(), span = method.span())
}

fn is_same(one: &Visibility, other: &Visibility) -> bool {
    text(one) == text(other)
}

/// Returns the visibility as text without spaces; empty for private.
fn text(visibility: &Visibility) -> String {
    let text = visibility.to_token_stream().to_string().replace(' ', "");
    if text == "pub(self)" { String::new() } else { text }
}

/// Rank of a visibility, the widest first.
fn width(visibility: &Visibility) -> u8 {
    match text(visibility).as_str() {
        "pub" => 0,
        "pub(crate)" => 1,
        "" => 4,
        text if text.starts_with("pub(in") => 2,
        _ => 3,
    }
}

/// Suffix of the trait for a narrower visibility: `Crate`, `Super`, `Private`.
fn suffix(visibility: &Visibility) -> String {
    if text(visibility).is_empty() {
        return "Private".to_owned();
    }
    let words = visibility.to_token_stream().to_string();
    let words = words.trim_start_matches("pub").replace(|c: char| !c.is_alphanumeric(), "_");
    camel_case(&words)
}

fn path(krate: &syn::Path) -> String {
    krate.to_token_stream().to_string().replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use syn::{ImplItem, Item, ItemImpl, Type, parse_quote};

    #[test]
    fn narrower_visibility_has_a_trait_of_its_own_name() {
        let named = |visibility: Visibility| suffix(&visibility);
        assert_eq!(named(parse_quote!(pub(crate))), "Crate");
        assert_eq!(named(parse_quote!(pub(in crate::bank::teller))), "InCrateBankTeller");
        assert_eq!(named(Visibility::Inherited), "Private");
        assert!(is_same(&parse_quote!(pub(self)), &Visibility::Inherited));
    }

    #[test]
    fn no_method_of_an_address_or_a_handle_hides_a_client_method() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../throng/src");
        let mut files = vec![source];
        let mut methods = Vec::new();
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                methods.extend(methods_of_an_address(&std::fs::read_to_string(path).unwrap()));
            }
        }
        assert!(methods.contains(&"is_alive".to_owned()));
        methods.retain(|method| {
            !ADDRESS_METHODS.contains(&method.as_str()) && !CHILD_METHODS.contains(&method.as_str())
        });
        assert!(methods.is_empty(), "add to ADDRESS_METHODS or CHILD_METHODS: {methods:?}");
    }

    /// Returns the public methods of addresses and of supervised children's handles, for all
    /// processes.
    fn methods_of_an_address(source: &str) -> Vec<String> {
        // Of any process, so that the argument is the block's own parameter.
        let is_address = |block: &ItemImpl| {
            let Type::Path(path) = &*block.self_ty else { return false };
            let Some(last) = path.path.segments.last() else { return false };
            let argument = last.arguments.to_token_stream().to_string().replace(' ', "");
            let mut parameters = block.generics.type_params();
            (last.ident == "Address" || last.ident == "Child")
                && parameters.any(|parameter| argument == format!("<{}>", parameter.ident))
        };
        let items = syn::parse_file(source).unwrap().items.into_iter();
        let blocks = items.filter_map(|item| match item {
            Item::Impl(block) if block.trait_.is_none() && is_address(&block) => Some(block),
            _ => None,
        });
        let items = blocks.flat_map(|block| block.items);
        items
            .filter_map(|item| match item {
                ImplItem::Fn(method) if matches!(method.vis, Visibility::Public(_)) => {
                    Some(method.sig.ident.to_string())
                }
                _ => None,
            })
            .collect()
    }
}
