//! `#[process]` on an impl block: its options, its methods, and the items generated from them.

use crate::attributes::{Carried, is_ours};
use crate::client;
use crate::hook::{self, Hook};
use crate::message::{self, MessageMethod};
use proc_macro2::{Group, Spacing, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{Parse, Parser};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Generics, Ident, ImplItem, Item, ItemImpl, Path, Type, parse_quote};

/// Facts about the block that the generated items need.
pub(crate) struct Block {
    pub(crate) self_ty: Type,
    /// Name of the process, without parameters.
    pub(crate) name: Ident,
    pub(crate) generics: Generics,
    /// Conditions under which the block exists.
    pub(crate) conditions: Vec<Attribute>,
    /// Path of throng.
    pub(crate) krate: Path,
    /// Name of the client trait, if it is not derived from the process's.
    pub(crate) client: Option<Ident>,
}

/// Expands `#[process]`.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut diagnostics = Diagnostics::default();
    let options = diagnostics.note(ProcessOptions::parse(options)).unwrap_or_default();
    let mut block = match read_block(item.clone()) {
        Ok(block) => block,
        Err(error) => {
            let error = error.into_compile_error();
            return quote!(#error #item);
        }
    };
    let (kind, krate, client) = (options.kind, options.krate, options.client);
    let expansion = match Block::new(&block, krate, client) {
        Ok(facts) => expand_block(&facts, &mut block, kind, &mut diagnostics),
        Err(error) => {
            diagnostics.add(error);
            take_attributes(&mut block);
            TokenStream::new()
        }
    };
    quote!(#diagnostics #block #expansion)
}

fn expand_block(
    block: &Block,
    source: &mut ItemImpl,
    kind: Kind,
    diagnostics: &mut Diagnostics,
) -> TokenStream {
    let mut messages = Vec::new();
    let mut hooks: Vec<Hook> = Vec::new();
    for item in &mut source.items {
        let ImplItem::Fn(method) = item else { continue };
        let message = diagnostics.note(message::attribute(method)).flatten();
        let hook = diagnostics.note(hook::attribute(method)).flatten();
        match (message, hook) {
            (Some(_), Some(hook)) => {
                diagnostics.add(Error::new_spanned(
                    hook,
                    "a method is either a message or a hook, not both",
                ));
            }
            (Some(attribute), None) => {
                let message = MessageMethod::take(&attribute, method, block).and_then(|message| {
                    client::refuse_collision(&message, &messages).map(|()| message)
                });
                messages.extend(diagnostics.note(message));
            }
            (None, Some(attribute)) if kind == Kind::Manual => {
                let text = "with the option `manual`, hooks belong in your own `impl Process`";
                diagnostics.add(Error::new_spanned(attribute, text));
            }
            (None, Some(attribute)) => {
                hooks.extend(diagnostics.note(Hook::read(&attribute, method)));
            }
            (None, None) => {}
        }
    }
    let refused: Vec<bool> = (messages.iter())
        .map(|message| {
            diagnostics.note(client::refuse_trait_name(message, &messages, block)).is_none()
        })
        .collect();
    let mut refused = refused.into_iter();
    messages.retain(|_| refused.next() != Some(true));
    let process = (kind != Kind::Manual).then(|| expand_process(block, kind, &hooks));
    let client = client::expand(&messages, block);
    let durable = expand_durable(block, &messages);
    let messages = messages.iter().map(|message| message.expand(block));
    quote!(#process #(#messages)* #client #durable)
}

/// Expands the list of the durable messages, which `#[derive(Durable)]` finds by its name.
fn expand_durable(block: &Block, messages: &[MessageMethod]) -> Option<TokenStream> {
    let durable = messages.iter().filter(|message| message.durable.is_some());
    let listed: Vec<TokenStream> = durable
        .map(|message| {
            let (conditions, ty) = (&message.carried.conditions, message.ty());
            quote!(#(#conditions)* ::throng_durable::Receives::of::<#ty>())
        })
        .collect();
    if listed.is_empty() {
        return None;
    }
    let Block { self_ty, conditions, generics, .. } = block;
    let (parameters, _, clause) = generics.split_for_impl();
    Some(quote! {
        #(#conditions)*
        #[allow(deprecated, private_interfaces)]
        impl #parameters #self_ty #clause {
            #[doc(hidden)]
            pub const DURABLE_MESSAGES_OF_THRONG: &'static [::throng_durable::Receives<Self>] =
                &[#(#listed),*];
        }
    })
}

fn expand_process(block: &Block, kind: Kind, hooks: &[Hook]) -> TokenStream {
    let Block { self_ty, krate, conditions, generics, .. } = block;
    let (parameters, _, clause) = generics.split_for_impl();
    let hooks = hooks.iter().map(|hook| hook.expand(block));
    let promise = (kind == Kind::NeverBlocks).then(|| {
        quote!(
            const NEVER_BLOCKS: bool = true;
        )
    });
    // An error about the state points at the process's type.
    let process = quote_spanned!(self_ty.span()=> #krate::Process);
    quote! {
        #(#conditions)*
        #[allow(deprecated)]
        impl #parameters #process for #self_ty #clause {
            #promise
            #(#hooks)*
        }
    }
}

impl Block {
    fn new(block: &ItemImpl, krate: Option<Path>, client: Option<Ident>) -> syn::Result<Block> {
        if let Some(lifetime) = block.generics.lifetimes().next() {
            let text = "a process owns its state: its type cannot have a lifetime parameter";
            return Err(Error::new_spanned(lifetime, text));
        }
        let name = match &*block.self_ty {
            Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
            _ => None,
        };
        let Some(name) = name else {
            let text = "`#[process]` needs a named type of this crate";
            return Err(Error::new_spanned(&block.self_ty, text));
        };
        if let Some(client) = client.as_ref().filter(|client| **client == name.ident) {
            let text = "this is the name of the process: give the client trait another name";
            return Err(Error::new_spanned(client, text));
        }
        let mut facts = Block {
            self_ty: (*block.self_ty).clone(),
            name: name.ident.clone(),
            generics: block.generics.clone(),
            conditions: Carried::of(&block.attrs).conditions,
            krate: krate.unwrap_or_else(|| parse_quote!(::throng)),
            client,
        };
        if let Some(clause) = &block.generics.where_clause {
            facts.generics.where_clause = Some(facts.without_self(clause)?);
        }
        Ok(facts)
    }

    /// Replaces `Self` by the process in a type or a clause, for use where `Self` is another type.
    pub(crate) fn without_self<T: Parse + ToTokens + Clone>(&self, part: &T) -> syn::Result<T> {
        let tokens = part.to_token_stream();
        if mentions_self(tokens.clone()) {
            syn::parse2(self.replace_self(tokens))
        } else {
            Ok(part.clone())
        }
    }

    fn replace_self(&self, tokens: TokenStream) -> TokenStream {
        let mut replaced = TokenStream::new();
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(ident) if ident == "Self" => {
                    let process = &self.self_ty;
                    let is_path = matches!(
                        tokens.peek(),
                        Some(TokenTree::Punct(next))
                            if next.as_char() == ':' && next.spacing() == Spacing::Joint
                    );
                    replaced.extend(if is_path { quote!(<#process>) } else { quote!(#process) });
                }
                TokenTree::Group(group) => {
                    let mut inner =
                        Group::new(group.delimiter(), self.replace_self(group.stream()));
                    inner.set_span(group.span());
                    replaced.extend([TokenTree::Group(inner)]);
                }
                other => replaced.extend([other]),
            }
        }
        replaced
    }
}

fn mentions_self(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == "Self",
        TokenTree::Group(group) => mentions_self(group.stream()),
        _ => false,
    })
}

/// Parses the impl block under the attribute.
fn read_block(item: TokenStream) -> syn::Result<ItemImpl> {
    let block = match syn::parse2(item)? {
        Item::Impl(block) => block,
        other => {
            let text = "`#[process]` belongs on an `impl` block with the process's methods";
            return Err(Error::new(other.span(), text));
        }
    };
    match &block.trait_ {
        None => Ok(block),
        Some((path, _)) => {
            let text = "`#[process]` implements the traits itself: it belongs on an `impl` block \
                        without a trait, where hooks have the attribute `#[hook]`";
            Err(Error::new_spanned(path, text))
        }
    }
}

/// Takes this crate's attributes off all methods of a block that is not expanded, so that they add
/// no further errors.
fn take_attributes(block: &mut ItemImpl) {
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item {
            method.attrs.retain(|attribute| {
                !["message", "hook"].iter().any(|name| is_ours(attribute.path(), name))
            });
        }
    }
}

/// The process's `impl Process`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Usual,
    /// With the promise that no turn blocks.
    NeverBlocks,
    /// The user writes it.
    Manual,
}

/// Options in `#[process(…)]`.
#[derive(Default)]
struct ProcessOptions {
    kind: Kind,
    krate: Option<Path>,
    client: Option<Ident>,
}

impl ProcessOptions {
    fn parse(tokens: TokenStream) -> syn::Result<ProcessOptions> {
        let mut options = ProcessOptions::default();
        let parser = syn::meta::parser(|option| {
            let kinds = [("manual", Kind::Manual), ("never_blocks", Kind::NeverBlocks)];
            if let Some((_, kind)) = kinds.iter().find(|(name, _)| option.path.is_ident(name)) {
                if !matches!(options.kind, Kind::Usual) {
                    let text = "with the option `manual`, promise `NEVER_BLOCKS` in your own `impl Process`";
                    return Err(option.error(text));
                }
                options.kind = *kind;
            } else if option.path.is_ident("client") {
                options.client = Some(option.value()?.parse()?);
            } else if option.path.is_ident("crate") {
                options.krate = Some(option.value()?.call(Path::parse_mod_style)?);
            } else {
                let path = option.path.to_token_stream();
                let text = format!(
                    "`#[process]` has no option `{path}`; \
                     it takes `manual`, `never_blocks`, `client = …` and `crate = …`"
                );
                return Err(Error::new_spanned(&option.path, text));
            }
            Ok(())
        });
        parser.parse2(tokens)?;
        Ok(options)
    }
}

/// Compile errors, collected so that all are reported at once.
#[derive(Default)]
struct Diagnostics(Option<Error>);

impl Diagnostics {
    fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn note<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }
}

impl ToTokens for Diagnostics {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.0.as_ref().map(Error::to_compile_error));
    }
}
