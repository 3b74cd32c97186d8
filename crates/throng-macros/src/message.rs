//! A message method: its parts, and the message, handler and bounds generated from it.

use crate::attributes::{self, Carried};
use crate::borrows::{self, Role};
use crate::generics;
use crate::process::Block;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Error, FnArg, GenericArgument, GenericParam, Generics, Ident, ImplItemFn, LitStr,
    Pat, PatType, Path, PathArguments, Receiver, ReceiverKind, ReturnType, Safety, Token, Type,
    TypePath, Visibility, WhereClause, parse_quote, parse_quote_spanned,
};

/// Types that programs use by their bare names: the types in the preludes of the language and of
/// throng. A message with such a name would hide the type in the whole module.
const HIDDEN_BY_A_MESSAGE: &[&str] = &[
    "Address",
    "AsMut",
    "AsRef",
    "Box",
    "CallError",
    "Child",
    "ChildSpec",
    "Clone",
    "Context",
    "Copy",
    "Default",
    "Down",
    "Drop",
    "Eq",
    "Err",
    "Exit",
    "ExitReason",
    "Extend",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "Future",
    "Group",
    "Handle",
    "Inbox",
    "Into",
    "IntoFuture",
    "IntoIterator",
    "Iterator",
    "Message",
    "MonitorRef",
    "None",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Pid",
    "Process",
    "Recipient",
    "ReplyTo",
    "Restart",
    "Result",
    "Runtime",
    "RuntimeHandle",
    "Send",
    "SendAll",
    "SendError",
    "Sized",
    "Some",
    "SpawnError",
    "String",
    "Supervisor",
    "Sync",
    "Timer",
    "ToOwned",
    "ToString",
    "TryFrom",
    "TryInto",
    "Turn",
    "Unpin",
    "Vec",
];

/// A method marked `#[message]`.
pub(crate) struct MessageMethod {
    pub(crate) method: Ident,
    /// Name of the message.
    pub(crate) name: Ident,
    pub(crate) visibility: Visibility,
    pub(crate) carried: Carried,
    pub(crate) is_only_sent: bool,
    derives: Vec<Path>,
    /// Name of the message in a store, if it is durable.
    pub(crate) durable: Option<LitStr>,
    is_async: bool,
    shares_state: bool,
    /// Arguments in the method's order, without the receiver.
    arguments: Vec<Argument>,
    pub(crate) reply: Type,
    /// Type parameters of the message.
    generics: Generics,
    marker: Option<TokenStream>,
}

enum Argument {
    Field(Box<Field>),
    Context,
}

/// An argument of the method, which is a field of the message.
pub(crate) struct Field {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    documentation: Vec<Attribute>,
}

impl MessageMethod {
    /// Reads the method, and takes off the documentation of its arguments, which rustc refuses
    /// there.
    ///
    /// # Errors
    /// If the method cannot be a message.
    pub(crate) fn take(
        attribute: &Attribute,
        method: &mut ImplItemFn,
        block: &Block,
    ) -> syn::Result<MessageMethod> {
        let options = MessageOptions::parse(attribute)?;
        let signature = &mut method.sig;
        if let Safety::Unsafe(token) = &signature.safety {
            let text = "a message's method cannot be `unsafe`: \
                        a sender cannot uphold its safety conditions";
            return Err(Error::new_spanned(token, text));
        }
        if let Some(parameter) = (signature.generics.params.iter())
            .find(|parameter| !matches!(parameter, GenericParam::Lifetime(_)))
        {
            let text = "a message's method cannot have type parameters: \
                        put the parameter on the `impl` block";
            return Err(Error::new_spanned(parameter, text));
        }
        let is_async = signature.asyncness.is_some();
        let shares_state = is_shared(receiver(signature.inputs.first(), &signature.ident)?)?;
        let mut arguments = Vec::new();
        for (index, argument) in signature.inputs.iter_mut().enumerate() {
            if let FnArg::Typed(argument) = argument {
                arguments.push(Argument::take(argument, index - 1, block)?);
            }
        }
        refuse_twins(&arguments, signature.inputs.iter())?;
        refuse_second_reply(&arguments, &signature.output)?;
        let reply = match &signature.output {
            ReturnType::Default => parse_quote_spanned!(signature.ident.span()=> ()),
            ReturnType::Type(_, ty) if options.is_only_sent => {
                let text = "a message with the option `send` has no reply: \
                            remove the return type or the option";
                return Err(Error::new_spanned(ty, text));
            }
            ReturnType::Type(_, ty) => {
                borrows::refuse(ty, Role::Reply)?;
                block.without_self(&**ty)?
            }
        };
        let name = match options.name {
            Some(name) if name == block.name => {
                let text =
                    format!("`{name}` is the name of the process: give the message another name");
                return Err(Error::new_spanned(name, text));
            }
            Some(name) => name,
            None => message_name(&signature.ident, block)?,
        };
        refuse_namesake(
            &name,
            &signature.ident,
            fields(&arguments).map(|field| &field.ty),
            &reply,
        )?;
        if options.durable.is_some()
            && let Some(question) =
                fields(&arguments).find(|field| answered_by(&field.ty).is_some())
        {
            let text = "a durable message has no `ReplyTo`, which would not outlive the program";
            return Err(Error::new_spanned(&question.ty, text));
        }
        let durable = options.durable.map(|name| {
            name.unwrap_or_else(|| {
                LitStr::new(&signature.ident.unraw().to_string(), signature.ident.span())
            })
        });
        let fields: Vec<TokenStream> =
            fields(&arguments).map(|field| field.ty.to_token_stream()).collect();
        let mut all = fields.clone();
        all.push(reply.to_token_stream());
        let generics = generics::needed(&block.generics, &all);
        Ok(MessageMethod {
            method: signature.ident.clone(),
            name,
            visibility: method.vis.clone(),
            carried: Carried::of(&method.attrs),
            is_only_sent: options.is_only_sent,
            derives: options.derives,
            durable,
            is_async,
            shares_state,
            marker: generics::marker(&generics, &fields),
            arguments,
            reply,
            generics,
        })
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &Field> {
        fields(&self.arguments)
    }

    /// Returns the field with the `ReplyTo` and the answer's type; `None` if the message is only
    /// sent.
    pub(crate) fn question(&self) -> Option<(&Field, &Type)> {
        let mut questions =
            self.fields().filter_map(|field| Some((field, answered_by(&field.ty)?)));
        questions.next().filter(|_| !self.is_only_sent)
    }

    /// Returns the message's type, with its parameters.
    pub(crate) fn ty(&self) -> TokenStream {
        let name = &self.name;
        let (_, parameters, _) = self.generics.split_for_impl();
        quote!(#name #parameters)
    }

    /// Returns an expression that makes the message of variables with the names of its fields.
    pub(crate) fn construction(&self) -> TokenStream {
        let name = &self.name;
        let fields = self.fields().map(|field| &field.name);
        match &self.marker {
            Some(_) => quote!(#name::new(#(#fields),*)),
            None if self.fields().next().is_none() => quote!(#name),
            None => quote!(#name { #(#fields),* }),
        }
    }

    /// Expands the message, its handler, and the bounds of its parts.
    pub(crate) fn expand(&self, block: &Block) -> TokenStream {
        let message = self.expand_message(block);
        let handler = self.expand_handler(block);
        let bounds = self.expand_bounds(block);
        quote!(#message #handler #bounds)
    }

    fn expand_message(&self, block: &Block) -> TokenStream {
        let MessageMethod { name, visibility, derives, reply, .. } = self;
        let krate = &block.krate;
        let conditions = self.conditions(block);
        let notes = self
            .carried
            .notes_or(&format!("The message that `{}::{}` handles.", block.name, self.method));
        let (parameters, arguments, clause) = self.generics.split_for_impl();
        // An error about the name points at the method, or at the option that gives the name.
        let at = Span::call_site().located_at(name.span());
        let named = {
            let mut generics = self.generics.clone();
            let check = quote!(Self: #krate::__expansion::Named).into_iter().map(|mut token| {
                token.set_span(at);
                token
            });
            let check: TokenStream = check.collect();
            generics.make_where_clause().predicates.push(parse_quote!(#check));
            generics.where_clause
        };
        let stored = self
            .durable
            .as_ref()
            .map(|_| quote!(#[derive(::serde::Serialize, ::serde::Deserialize)]));
        let derives = (!derives.is_empty()).then(|| quote!(#[derive(#(#derives),*)]));
        let derives = quote!(#stored #derives);
        let fields: Vec<TokenStream> = self
            .fields()
            .map(|Field { name, ty, documentation }| {
                let otherwise = format!("The argument `{}` of the method.", name.unraw());
                let otherwise = documentation.is_empty().then(|| quote!(#[doc = #otherwise]));
                quote!(#(#documentation)* #otherwise #visibility #name: #ty)
            })
            .collect();
        let definition = |clause: Option<&WhereClause>| {
            let body = match (&self.marker, fields.is_empty()) {
                (Some(marker), _) => {
                    quote_spanned!(at=> #clause { #(#fields,)* marker_of_throng: #marker })
                }
                (None, true) => quote_spanned!(at=> #clause;),
                (None, false) => quote_spanned!(at=> #clause { #(#fields),* }),
            };
            let declaration = quote_spanned!(at=> struct #name);
            quote! {
                #(#conditions)*
                #notes
                #derives
                #[allow(private_interfaces, private_bounds, trivial_bounds, unreachable_pub)]
                #visibility #declaration #parameters #body
            }
        };
        // The documented definition is without the check.
        let (checked, documented) =
            (definition(named.as_ref()), definition(self.generics.where_clause.as_ref()));
        let constructor = self.expand_constructor(block);
        let implementation = quote_spanned! {at=>
            impl #parameters #krate::Message for #name #arguments #clause {
                type Reply = #reply;
            }
        };
        let durable = self.durable.as_ref().map(|stored| {
            quote_spanned! {at=>
                #(#conditions)*
                #[automatically_derived]
                impl #parameters ::throng_durable::DurableMessage for #name #arguments #clause {
                    const NAME: &'static str = #stored;
                }
            }
        });
        quote! {
            #durable

            #[cfg(not(doc))]
            #checked
            #[cfg(doc)]
            #documented

            #constructor

            #(#conditions)*
            #[allow(deprecated, private_interfaces)]
            #implementation
        }
    }

    /// Expands to the constructor of a message with a marker, whose field nobody should have to name.
    fn expand_constructor(&self, block: &Block) -> Option<TokenStream> {
        self.marker.as_ref()?;
        let MessageMethod { name, visibility, .. } = self;
        let conditions = self.conditions(block);
        let (parameters, arguments, clause) = self.generics.split_for_impl();
        let names = self.fields().map(|field| &field.name).collect::<Vec<_>>();
        let types = self.fields().map(|field| &field.ty);
        Some(quote! {
            #(#conditions)*
            #[allow(deprecated, clippy::new_without_default)]
            impl #parameters #name #arguments #clause {
                /// Makes the message.
                #visibility const fn new(#(#names: #types),*) -> Self {
                    Self { #(#names,)* marker_of_throng: ::core::marker::PhantomData }
                }
            }
        })
    }

    fn expand_handler(&self, block: &Block) -> TokenStream {
        let MessageMethod { method, reply, .. } = self;
        let (krate, process) = (&block.krate, &block.self_ty);
        let conditions = self.conditions(block);
        let (parameters, _, clause) = block.generics.split_for_impl();
        let (name, ty) = (&self.name, self.ty());
        // The user's arguments are in scope together with these variables.
        let message = Ident::new("message", Span::mixed_site().located_at(method.span()));
        let cx = Ident::new("cx", Span::mixed_site());
        let fields: Vec<&Ident> = self.fields().map(|field| &field.name).collect();
        let taken = match fields.as_slice() {
            [] => quote!(let _ = #message;),
            fields => quote!(let #name { #(#fields,)* .. } = #message;),
        };
        let arguments = self.arguments.iter().map(|argument| match argument {
            Argument::Field(field) => field.name.to_token_stream(),
            Argument::Context => cx.to_token_stream(),
        });
        // Errors about a future that is not `Send` point at the method.
        let span = method.span();
        let handles = self.located(&quote!(#krate::Handle<#ty>));
        let call = quote_spanned!(span=> Self::#method(self, #(#arguments),*));
        let unused = (!self.takes_context()).then(|| quote!(let _ = #cx;));
        let read_only = self.shares_state.then(|| {
            quote!(
                const READ_ONLY: bool = true;
            )
        });
        let handle = if self.is_async {
            let future = quote_spanned!(span=> impl ::core::future::Future<Output = #reply> + ::core::marker::Send);
            quote! {
                fn handle(&mut self, #message: #ty, #cx: &mut #krate::Context<Self>) -> #future {
                    #unused
                    #taken
                    #call
                }
            }
        } else {
            quote! {
                async fn handle(&mut self, #message: #ty, #cx: &mut #krate::Context<Self>) -> #reply {
                    #unused
                    #taken
                    #call
                }
            }
        };
        quote! {
            #(#conditions)*
            #[allow(deprecated, clippy::let_unit_value, clippy::unused_async)]
            impl #parameters #handles for #process #clause {
                #read_only
                #handle
            }
        }
    }

    /// Expands checks of the bounds that the generated code needs, located at the user's types.
    fn expand_bounds(&self, block: &Block) -> TokenStream {
        let krate = &block.krate;
        let conditions = self.conditions(block);
        let (parameters, _, clause) = block.generics.split_for_impl();
        let check = |bound: &str, ty: &dyn ToTokens, span: Span| {
            let bound = Ident::new(bound, span);
            quote_spanned!(span=> #krate::__expansion::#bound::<#ty>();)
        };
        let fields = self.fields().map(|field| check("argument", &field.ty, field.ty.span()));
        let reply = check("reply", &self.reply, self.reply.span());
        let state = (self.is_async && self.shares_state)
            .then(|| check("shared_state", &self.located(&block.self_ty), self.method.span()));
        quote! {
            #(#conditions)*
            #[allow(deprecated)]
            const _: () = {
                #[allow(dead_code)]
                fn bounds #parameters () #clause {
                    #(#fields)*
                    #reply
                    #state
                }
            };
        }
    }

    /// Returns the tokens with a span by which errors point at the method.
    fn located(&self, tokens: &impl ToTokens) -> TokenStream {
        let tokens = tokens.to_token_stream().into_iter();
        let located = tokens.map(|mut token| {
            token.set_span(token.span().located_at(self.method.span()));
            token
        });
        located.collect()
    }

    /// Returns the conditions of the message: the block's and the method's.
    pub(crate) fn conditions<'a>(&'a self, block: &'a Block) -> Vec<&'a Attribute> {
        block.conditions.iter().chain(&self.carried.conditions).collect()
    }

    fn takes_context(&self) -> bool {
        self.arguments.iter().any(|argument| matches!(argument, Argument::Context))
    }
}

/// Returns the answer's type, if `ty` is a `ReplyTo`.
fn answered_by(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "ReplyTo")?;
    match &last.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(GenericArgument::Type(answer)) if arguments.args.len() == 1 => Some(answer),
            _ => None,
        },
        _ => None,
    }
}

/// Refuses a second way to answer beside a `ReplyTo`.
fn refuse_second_reply(arguments: &[Argument], output: &ReturnType) -> syn::Result<()> {
    let mut questions = fields(arguments).filter(|field| answered_by(&field.ty).is_some());
    let has_one = questions.next().is_some();
    match (questions.next(), output) {
        (Some(second), _) => Err(Error::new_spanned(
            &second.ty,
            "a message has at most one `ReplyTo`: this is the second",
        )),
        (None, ReturnType::Type(_, ty)) if has_one => {
            let text = "this message replies through its `ReplyTo`: remove the return type";
            Err(Error::new_spanned(ty, text))
        }
        _ => Ok(()),
    }
}

fn fields(arguments: &[Argument]) -> impl Iterator<Item = &Field> {
    arguments.iter().filter_map(|argument| match argument {
        Argument::Field(field) => Some(&**field),
        Argument::Context => None,
    })
}

impl Argument {
    /// Reads the argument at `position`, and takes off its documentation.
    fn take(argument: &mut PatType, position: usize, block: &Block) -> syn::Result<Argument> {
        if is_context(&argument.ty) {
            return Ok(Argument::Context);
        }
        let documentation =
            argument.attrs.extract_if(.., |attribute| attribute.path().is_ident("doc")).collect();
        if let Some(condition) = argument.attrs.iter().find(|attribute| {
            ["cfg", "cfg_attr"].iter().any(|name| attribute.path().is_ident(name))
        }) {
            let text = "a message's field cannot depend on a condition: \
                        put the condition on the method, or write two methods";
            return Err(Error::new_spanned(condition, text));
        }
        if let Type::Path(path) = &*argument.ty
            && ["Context < Self >", "throng :: Context < Self >"]
                .contains(&path.to_token_stream().to_string().as_str())
        {
            let text = "the context is passed by reference: take `&mut Context<Self>`";
            return Err(Error::new_spanned(path, text));
        }
        borrows::refuse(&argument.ty, Role::Argument)?;
        let name = match &*argument.pat {
            Pat::Ident(pattern) if pattern.subpat.is_none() => pattern.ident.clone(),
            pattern => Ident::new(&format!("_{position}"), pattern.span()),
        };
        let ty = block.without_self(&*argument.ty)?;
        Ok(Argument::Field(Box::new(Field { name, ty, documentation })))
    }
}

/// Whether an argument's type is the process's context, by reference.
pub(crate) fn is_context(ty: &Type) -> bool {
    let Type::Reference(reference) = ty else { return false };
    let Type::Path(path) = &*reference.elem else { return false };
    path.path.segments.last().is_some_and(|last| {
        last.ident == "Context" && !matches!(last.arguments, PathArguments::Parenthesized(_))
    })
}

/// Returns the method's `self`.
///
/// # Errors
/// If the method has no `self`.
pub(crate) fn receiver<'a>(first: Option<&'a FnArg>, method: &Ident) -> syn::Result<&'a Receiver> {
    match first {
        Some(FnArg::Receiver(receiver)) => Ok(receiver),
        _ => {
            let text =
                "the method of a message or hook needs a receiver: take `&mut self` or `&self`";
            Err(Error::new_spanned(method, text))
        }
    }
}

/// Whether the receiver is `&self`, not `&mut self`.
///
/// # Errors
/// If it is neither of them.
pub(crate) fn is_shared(receiver: &Receiver) -> syn::Result<bool> {
    match &receiver.kind {
        ReceiverKind::Reference(_, _, mutability) => return Ok(mutability.is_none()),
        ReceiverKind::Typed(_, ty) => {
            if let Type::Reference(reference) = &**ty
                && matches!(&*reference.elem, Type::Path(path) if path.path.is_ident("Self"))
            {
                return Ok(reference.mutability.is_none());
            }
        }
        _ => {}
    }
    let text = "a method cannot take the state out of its process: take `&mut self` or `&self`; \
                to end the process, call `cx.stop(reason)`";
    Err(Error::new_spanned(receiver, text))
}

/// Refuses two arguments with the same name, and a second context.
fn refuse_twins<'a>(
    arguments: &[Argument],
    inputs: impl Iterator<Item = &'a FnArg>,
) -> syn::Result<()> {
    let mut names = Vec::new();
    let mut has_context = false;
    for (argument, input) in arguments.iter().zip(inputs.skip(1)) {
        match argument {
            Argument::Context if has_context => {
                return Err(Error::new_spanned(
                    input,
                    "duplicate context: a method takes `&mut Context<Self>` at most once",
                ));
            }
            Argument::Context => has_context = true,
            Argument::Field(field) if names.contains(&&field.name) => {
                let text = format!("the message would have two fields `{}`", field.name);
                return Err(Error::new_spanned(input, text));
            }
            Argument::Field(field) => names.push(&field.name),
        }
    }
    Ok(())
}

/// Refuses a message with the name of a type that its own method takes or returns: that type is
/// a different one, the user's.
fn refuse_namesake<'a>(
    name: &Ident,
    method: &Ident,
    fields: impl Iterator<Item = &'a Type>,
    reply: &'a Type,
) -> syn::Result<()> {
    let Some(found) = named_in(name, fields.chain([reply])) else { return Ok(()) };
    let text = format!(
        "the message of `{method}` would be called `{name}`, like this type: \
         rename the message with `#[message(name = …)]`"
    );
    Err(Error::new_spanned(found, text))
}

/// Returns the last place in `types` where a type is called `name`, without a path.
pub(crate) fn named_in<'a>(name: &Ident, types: impl Iterator<Item = &'a Type>) -> Option<Ident> {
    struct NameFinder<'n> {
        name: &'n Ident,
        found: Option<Ident>,
    }
    impl<'a> Visit<'a> for NameFinder<'_> {
        fn visit_type_path(&mut self, path: &'a TypePath) {
            // A path of several segments names a type of another module.
            let TypePath { path: Path { leading_colon, segments }, .. } = path;
            if leading_colon.is_none() && segments.len() == 1 && segments[0].ident == *self.name {
                self.found = Some(segments[0].ident.clone());
            }
            visit::visit_type_path(self, path);
        }
    }
    let mut finder = NameFinder { name, found: None };
    types.for_each(|ty| finder.visit_type(ty));
    finder.found
}

/// Returns the name of the message: the method's name in camel case.
///
/// # Errors
/// If the name is taken or not valid.
fn message_name(method: &Ident, block: &Block) -> syn::Result<Ident> {
    let name = generated_name(method, "message")?;
    if block.name == name {
        let text = format!(
            "the message of `{method}` would be called `{name}`, like the process: rename the \
             message with `#[message(name = …)]`"
        );
        return Err(Error::new_spanned(method, text));
    }
    Ok(name)
}

/// Returns the name of what an attribute `what` makes of a function: the function's name in camel case.
///
/// # Errors
/// If the name is not valid, or would hide another.
pub(crate) fn generated_name(function: &Ident, what: &str) -> syn::Result<Ident> {
    let name = camel_case(&function.unraw().to_string());
    let why = if name.is_empty() || name == "Self" {
        format!("`{function}` gives no valid name for a {what}")
    } else if HIDDEN_BY_A_MESSAGE.contains(&name.as_str()) {
        format!(
            "the {what} of `{function}` would be called `{name}` and hide the `{name}` of the prelude"
        )
    } else {
        return Ok(format_ident!("{name}", span = function.span()));
    };
    let text = format!("{why}: rename the {what} with `#[{what}(name = …)]`");
    Err(Error::new_spanned(function, text))
}

pub(crate) fn camel_case(snake_case: &str) -> String {
    let words = snake_case.split('_').filter(|word| !word.is_empty());
    words
        .flat_map(|word| {
            let mut letters = word.chars();
            letters.next().into_iter().flat_map(char::to_uppercase).chain(letters)
        })
        .collect()
}

/// Options in `#[message(…)]`.
#[derive(Default)]
struct MessageOptions {
    is_only_sent: bool,
    name: Option<Ident>,
    derives: Vec<Path>,
    /// Whether the message is durable, and its name in a store.
    durable: Option<Option<LitStr>>,
}

impl MessageOptions {
    fn parse(attribute: &Attribute) -> syn::Result<MessageOptions> {
        let mut options = MessageOptions::default();
        if matches!(attribute.meta, syn::Meta::Path(_)) {
            return Ok(options);
        }
        attribute.parse_nested_meta(|option| {
            if option.path.is_ident("send") {
                options.is_only_sent = true;
            } else if option.path.is_ident("name") {
                options.name = Some(option.value()?.parse()?);
            } else if option.path.is_ident("durable") {
                let is_named = option.input.peek(Token![=]);
                options.durable = Some(is_named.then(|| option.value()?.parse()).transpose()?);
            } else if option.path.is_ident("derive") {
                let inside;
                syn::parenthesized!(inside in option.input);
                options.derives.extend(inside.parse_terminated(Path::parse_mod_style, Token![,])?);
            } else {
                let path = option.path.to_token_stream();
                let text = if option.path.is_ident("cast") {
                    "`#[message]` has no option `cast`: write `#[message(send)]`".to_owned()
                } else {
                    format!(
                        "`#[message]` has no option `{path}`; \
                         it takes `send`, `durable`, `name = …` and `derive(…)`"
                    )
                };
                return Err(Error::new_spanned(&option.path, text));
            }
            Ok(())
        })?;
        Ok(options)
    }
}

/// Takes the attribute `#[message]` off the method, if it is there.
pub(crate) fn attribute(method: &mut ImplItemFn) -> syn::Result<Option<Attribute>> {
    attributes::take(&mut method.attrs, "message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use syn::{Item, UseTree};

    #[test]
    fn a_method_name_becomes_camel_case() {
        for (method, message) in
            [("deposit", "Deposit"), ("get_all_2", "GetAll2"), ("_drain__now", "DrainNow")]
        {
            assert_eq!(camel_case(method), message);
        }
    }

    #[test]
    fn no_message_hides_a_type_of_throngs_prelude() {
        let prelude = syn::parse_file(include_str!("../../throng/src/prelude.rs")).unwrap();
        let mut names = BTreeSet::new();
        for item in &prelude.items {
            if let Item::Use(import) = item {
                collect(&import.tree, &mut names);
            }
        }
        assert!(names.contains("Address"));
        names.retain(|name| {
            let is_type = name.starts_with(char::is_uppercase);
            is_type && !HIDDEN_BY_A_MESSAGE.contains(&name.as_str())
        });
        assert!(names.is_empty(), "add to HIDDEN_BY_A_MESSAGE: {names:?}");
    }

    fn collect(tree: &UseTree, names: &mut BTreeSet<String>) {
        match tree {
            UseTree::Path(path) => collect(&path.tree, names),
            UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
            UseTree::Rename(rename) => drop(names.insert(rename.rename.to_string())),
            UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, names)),
            _ => {}
        }
    }
}
