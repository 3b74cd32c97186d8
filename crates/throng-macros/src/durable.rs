//! `#[derive(Durable)]`: the kind and the version of an entity's state, and its indexes, from attributes.

use crate::attributes::Carried;
use crate::indexes::Indexes;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::parse::Parse;
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Expr, ExprPath, Generics, Ident, LitInt, LitStr, Path, Token, Type,
    parse_quote,
};

/// `throng_durable::KIND_BYTES_MAX`.
const KIND_BYTES_MAX: usize = 64;

/// Expands the derive.
pub(crate) fn expand(item: TokenStream) -> TokenStream {
    match implement(item) {
        Ok(implementation) => implementation,
        Err(error) => error.into_compile_error(),
    }
}

fn implement(item: TokenStream) -> syn::Result<TokenStream> {
    let item: DeriveInput = syn::parse2(item)?;
    let name = &item.ident;
    let refusals = [refuse_union(&item), refuse_parameters(&item.generics)];
    let options = DurableOptions::read(&item);
    let indexes = Indexes::read(&item);
    let refusals = refusals.into_iter().filter_map(Result::err);
    let refusals = refusals.chain(options.as_ref().err().cloned());
    if let Some(error) = refusals.chain(indexes.as_ref().err().cloned()).reduce(join) {
        return Err(error);
    }
    let indexes = indexes?;
    let DurableOptions { kind, version, migrate, deps, initial, messages, on_failure, krate } =
        options?;
    let conditions = Carried::of(&item.attrs).conditions;
    let krate = krate.unwrap_or_else(|| parse_quote!(::throng_durable));
    // An error about what the type lacks, such as `Default`, points at its name.
    let durable = quote_spanned!(name.span()=> #krate::Durable);
    let version = version.map(|version| quote!(const VERSION: u16 = #version;));
    let migrate = migrate.map(|migrate| {
        let old = Ident::new("old", Span::mixed_site());
        // An error about the function's type points at the function.
        let call = quote_spanned!(migrate.span()=> #migrate(#old));
        quote! {
            fn migrate(#old: #krate::OldState<'_>)
                -> ::core::result::Result<Self, #krate::StateError>
            {
                #call
            }
        }
    });
    let messages = match messages {
        Some(messages) => {
            let listed = messages.iter().map(|message| {
                // An error about the message points at its name.
                quote_spanned!(message.span()=> #krate::Receives::of::<#message>())
            });
            quote!(&[#(#listed),*])
        }
        // The constant that `#[process]` generates comes before that of the trait.
        None => quote!({
            #[allow(unused_imports)]
            use #krate::NoMessages as _;
            <#name>::DURABLE_MESSAGES_OF_THRONG
        }),
    };
    let on_failure =
        on_failure.map(|policy| quote!(const ON_FAILURE: #krate::OnFailure = #policy;));
    let deps = deps.unwrap_or_else(|| parse_quote!(()));
    let [key, given] = ["key", "deps"].map(|name| Ident::new(name, Span::mixed_site()));
    let initial = match initial {
        // An error about the function's type points at the function.
        Some(initial) => quote_spanned!(initial.span()=> #initial(#key, #given)),
        // An error about a missing `Default` points at the name.
        None => {
            quote_spanned!(name.span()=> { let _ = (#key, #given); ::core::default::Default::default() })
        }
    };
    let constants = indexes.constants(&item, &krate);
    let indexes = indexes.definitions(name, &krate);
    Ok(quote! {
        #(#conditions)*
        #constants

        #(#conditions)*
        #[automatically_derived]
        impl #durable for #name {
            const KIND: &'static str = #kind;
            #version
            const MESSAGES: &'static [#krate::Receives<Self>] = #messages;
            #indexes
            #on_failure
            type Deps = #deps;
            fn initial(#key: &str, #given: &#deps) -> Self {
                #initial
            }
            #migrate
        }
    })
}

pub(crate) fn join(mut errors: Error, error: Error) -> Error {
    errors.combine(error);
    errors
}

fn refuse_union(item: &DeriveInput) -> syn::Result<()> {
    match &item.data {
        Data::Union(data) => {
            let text = "a union cannot be stored: the state of an entity is a struct or an enum";
            Err(Error::new(data.union_token.span(), text))
        }
        Data::Struct(_) | Data::Enum(_) => Ok(()),
    }
}

/// Refuses parameters: each choice of them would be a type of its own, all under one kind.
fn refuse_parameters(generics: &Generics) -> syn::Result<()> {
    if generics.params.is_empty() {
        return Ok(());
    }
    let text = "a kind belongs to one type: a type with parameters needs an `impl Durable` by \
                hand, for one choice of the parameters or with a `KIND` for each";
    Err(Error::new_spanned(&generics.params, text))
}

/// Options in `#[durable(…)]`.
#[derive(Default)]
struct DurableOptions {
    kind: Option<LitStr>,
    version: Option<LitInt>,
    migrate: Option<ExprPath>,
    deps: Option<Type>,
    initial: Option<ExprPath>,
    messages: Option<Vec<Type>>,
    on_failure: Option<Expr>,
    krate: Option<Path>,
}

impl DurableOptions {
    /// Reads the options of all attributes `#[durable]` of the item.
    fn read(item: &DeriveInput) -> syn::Result<DurableOptions> {
        let mut options = DurableOptions::default();
        let mut errors: Option<Error> = None;
        let mut note = |error: Error| {
            errors = Some(match errors.take() {
                Some(errors) => join(errors, error),
                None => error,
            });
        };
        for attribute in item.attrs.iter().filter(|attribute| attribute.path().is_ident("durable"))
        {
            let read = attribute.parse_nested_meta(|option| {
                if let Some(error) = options.read_option(&option)? {
                    note(error);
                }
                Ok(())
            });
            if let Err(error) = read {
                note(error);
            }
        }
        if errors.is_none() {
            errors = options.whole_fault(&item.ident);
        }
        errors.map_or(Ok(options), Err)
    }

    /// Returns the error of options that do not go together.
    fn whole_fault(&self, name: &Ident) -> Option<Error> {
        if self.kind.is_none() {
            let text = format!(
                "the entity's kind has no name: give `{name}` a name that never changes, with \
                 `#[durable(kind = \"…\")]`"
            );
            return Some(Error::new_spanned(name, text));
        }
        let is_first = self.version.as_ref().is_none_or(|version| version.base10_digits() == "1");
        let migrate = self.migrate.as_ref().filter(|_| is_first)?;
        let text = "there is no version before 1 to migrate from: raise `version`";
        Some(Error::new_spanned(migrate, text))
    }

    /// Reads an option; returns the error of one that is read but not valid.
    ///
    /// # Errors
    /// If the option cannot be read, and the options behind it cannot be found.
    fn read_option(&mut self, option: &ParseNestedMeta<'_>) -> syn::Result<Option<Error>> {
        let path = &option.path;
        let is = |name| path.is_ident(name);
        let (is_second, fault) = if is("kind") {
            let kind: LitStr = option.value()?.parse()?;
            let fault = kind_fault(&kind);
            (self.kind.replace(kind).is_some(), fault)
        } else if is("version") {
            let version: LitInt = option.value()?.parse()?;
            let fault = version_fault(&version);
            (self.version.replace(version).is_some(), fault)
        } else if is("migrate") {
            (self.migrate.replace(option.value()?.parse()?).is_some(), None)
        } else if is("deps") {
            (self.deps.replace(option.value()?.parse()?).is_some(), None)
        } else if is("initial") {
            (self.initial.replace(option.value()?.parse()?).is_some(), None)
        } else if is("messages") {
            let inside;
            syn::parenthesized!(inside in option.input);
            let messages = inside.parse_terminated(Type::parse, Token![,])?;
            (self.messages.replace(messages.into_iter().collect()).is_some(), None)
        } else if is("on_failure") {
            (self.on_failure.replace(option.value()?.parse()?).is_some(), None)
        } else if is("crate") {
            let krate = option.value()?.call(Path::parse_mod_style)?;
            (self.krate.replace(krate).is_some(), None)
        } else {
            let text = format!(
                "`#[durable]` has no option `{}`; it takes `kind = \"…\"`, `version = …`, \
                 `migrate = …`, `deps = …`, `initial = …`, `messages(…)`, `on_failure = …` and `crate = …`",
                path.to_token_stream()
            );
            return Err(Error::new_spanned(path, text));
        };
        if is_second {
            let text = format!("duplicate option `{}`", path.to_token_stream());
            return Ok(Some(Error::new_spanned(path, text)));
        }
        Ok(fault)
    }
}

fn kind_fault(kind: &LitStr) -> Option<Error> {
    let bytes = kind.value().len();
    let text = match bytes {
        0 => "the name of a kind is not empty".to_owned(),
        1..=KIND_BYTES_MAX if kind.value().contains('\0') => {
            "the name of a kind has no zero byte".to_owned()
        }
        1..=KIND_BYTES_MAX => return None,
        _ => format!("the name of a kind has at most {KIND_BYTES_MAX} bytes, and this has {bytes}"),
    };
    Some(Error::new_spanned(kind, text))
}

fn version_fault(version: &LitInt) -> Option<Error> {
    let is_valid = version.base10_parse::<u16>().is_ok_and(|number| number > 0);
    (!is_valid).then(|| Error::new_spanned(version, "a version is a number from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::KIND_BYTES_MAX;

    #[test]
    fn a_kind_is_as_long_as_the_durable_layer_allows() {
        let layout = include_str!("../../throng-durable/src/layout.rs");
        assert!(layout.contains(&format!("KIND_BYTES_MAX: usize = {KIND_BYTES_MAX};")));
    }
}
