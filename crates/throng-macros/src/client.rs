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

/// Methods that a handle of a process has already, by the handle's type: all public methods that its own `impl`
/// blocks have for any process, with the words for the handle in an error.
///
/// These methods win over those of a client, so that a message of the same name would never be sent.
const HANDLE_METHODS: &[(&str, &str, &[&str])] = &[
    (
        "Address",
        "an address",
        &["ask", "call", "deliver", "exit", "is_alive", "kill", "pid", "recipient", "send", "stop"],
    ),
    ("Child", "the handle of a supervised child", &["address", "ask", "call", "deliver", "send"]),
    (
        "Entity",
        "an entity of `throng-durable`",
        &[
            "call",
            "forget",
            "in_current_span",
            "inbox",
            "instrument",
            "key",
            "monitor",
            "pin",
            "reminders",
            "retry_message",
            "send",
            "send_durable",
            "skip_message",
            "unpin",
        ],
    ),
    ("InstrumentedEntity", "an entity with a span", &["call", "send"]),
    // The type is tracing's.
    (
        "Instrumented",
        "an address with a span",
        &["inner", "inner_mut", "inner_pin_mut", "inner_pin_ref", "into_inner", "span", "span_mut"],
    ),
];

/// Methods of traits that every handle has, or may have in scope. A client's method takes an address by value
/// and the other handles by reference: so it wins over the methods that take an address by reference, and the
/// methods that take a value win over it on the other handles.
const TRAIT_METHODS: &[&str] = &[
    "borrow",
    "borrow_mut",
    "clamp",
    "clone",
    "clone_from",
    "clone_into",
    "cmp",
    "eq",
    "fmt",
    "from",
    "ge",
    "gt",
    "hash",
    "in_current_span",
    "instrument",
    "into",
    "le",
    "lt",
    "max",
    "min",
    "ne",
    "partial_cmp",
    "to_owned",
    "try_from",
    "try_into",
    "type_id",
    "with_current_subscriber",
    "with_subscriber",
];

/// Returns the words for the handle that has a method of this name already, if there is one.
fn owner(name: &str) -> Option<&'static str> {
    let own = HANDLE_METHODS.iter().find(|(.., methods)| methods.contains(&name));
    let own = own.map(|(_, words, _)| *words);
    own.or_else(|| TRAIT_METHODS.contains(&name).then_some("every handle of a process"))
}

/// Refuses a message with the name of an earlier message, or with a client method that exists
/// already.
pub(crate) fn refuse_collision(
    message: &MessageMethod,
    earlier: &[MessageMethod],
) -> syn::Result<()> {
    let method = &message.method;
    let names = client_names(message);
    for name in names.iter().map(|name| name.unraw().to_string()) {
        if let Some(owner) = owner(&name) {
            let text = format!(
                "{owner} has a method `{name}` already, which would hide the message or be hidden \
                 by it: give this method another name"
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;
    use syn::{ImplItem, Item, Type, parse_quote};

    #[test]
    fn narrower_visibility_has_a_trait_of_its_own_name() {
        let named = |visibility: Visibility| suffix(&visibility);
        assert_eq!(named(parse_quote!(pub(crate))), "Crate");
        assert_eq!(named(parse_quote!(pub(in crate::bank::teller))), "InCrateBankTeller");
        assert_eq!(named(Visibility::Inherited), "Private");
        assert!(is_same(&parse_quote!(pub(self)), &Visibility::Inherited));
    }

    #[test]
    fn no_method_of_a_handle_has_the_name_of_a_client_method() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files =
            ["throng/src", "throng-durable/src"].map(|source| crates.join(source)).to_vec();
        let mut items = Vec::new();
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                items.extend(
                    syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap().items,
                );
            }
        }
        let mut clients = BTreeSet::new();
        let mut methods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for item in items {
            match item {
                Item::Impl(block) if block.trait_.is_none() => {
                    let Some(name) = name_of(&block.self_ty, &block.generics) else { continue };
                    methods.entry(name).or_default().extend(public_methods(block.items));
                }
                Item::Impl(block) => {
                    let of = block.trait_.as_ref().and_then(|(path, _)| path.segments.last());
                    if of.is_some_and(|of| of.ident == "Client") {
                        clients.insert(block.self_ty.to_token_stream().to_string());
                    }
                }
                Item::Macro(call) if call.mac.path.is_ident("client") => {
                    clients.insert(call.mac.tokens.to_string());
                }
                _ => {}
            }
        }
        // `$ client` is the pattern of the macro `client`.
        let known = |client: &String| {
            HANDLE_METHODS.iter().any(|(handle, ..)| client.contains(&format!("{handle} <")))
        };
        clients.retain(|client| !known(client) && client != "$ client");
        assert!(clients.is_empty(), "add to HANDLE_METHODS: {clients:?}");
        for (handle, _, listed) in
            HANDLE_METHODS.iter().filter(|(name, ..)| *name != "Instrumented")
        {
            let listed: BTreeSet<_> = listed.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(methods.remove(*handle).unwrap_or_default(), listed, "of {handle}");
        }
    }

    /// Returns the name of a type in an `impl` block for any process: the argument is the block's own parameter.
    fn name_of(ty: &Type, generics: &syn::Generics) -> Option<String> {
        let Type::Path(path) = ty else { return None };
        let last = path.path.segments.last()?;
        let argument = last.arguments.to_token_stream().to_string().replace(' ', "");
        let mut parameters = generics.type_params();
        let is_any = parameters.any(|parameter| argument == format!("<{}>", parameter.ident));
        is_any.then(|| last.ident.to_string())
    }

    fn public_methods(items: Vec<ImplItem>) -> impl Iterator<Item = String> {
        items.into_iter().filter_map(|item| match item {
            ImplItem::Fn(method) if matches!(method.vis, Visibility::Public(_)) => {
                Some(method.sig.ident.to_string())
            }
            _ => None,
        })
    }
}
