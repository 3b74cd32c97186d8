//! `#[workflow]`: a type with `impl Workflow`, of an async function that stays as it is.

use crate::attributes::Carried;
use crate::durable::join;
use crate::message::{generated_name, named_in};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::{
    Error, FnArg, GenericArgument, Ident, ItemFn, LitStr, Path, PathArguments, ReturnType, Type,
    parse_quote,
};

/// Expands the attribute.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    match implement(options, item.clone()) {
        Ok(implementation) => quote!(#item #implementation),
        Err(error) => {
            let error = error.into_compile_error();
            quote!(#error #item)
        }
    }
}

fn implement(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let function: ItemFn = syn::parse2(item).map_err(|error| {
        Error::new(error.span(), "`#[workflow]` belongs on an async function, with its body")
    })?;
    let mut read = WorkflowOptions::default();
    let parser = syn::meta::parser(|option| read.read_option(&option));
    let options = parser.parse2(options);
    let parts = Parts::read(&function);
    if let Some(error) = options.err().into_iter().chain(parts.as_ref().err().cloned()).reduce(join)
    {
        return Err(error);
    }
    let Parts { input, output } = parts?;
    let WorkflowOptions { name, stored, krate } = read;
    let ItemFn { vis, sig, .. } = &function;
    let method = &sig.ident;
    let name = match name {
        Some(name) => name,
        None => type_name(method, &input, &output)?,
    };
    let stored = stored.unwrap_or_else(|| LitStr::new(&method.unraw().to_string(), method.span()));
    let krate = krate.unwrap_or_else(|| parse_quote!(::throng_durable));
    let carried = Carried::of(&function.attrs);
    let conditions = &carried.conditions;
    let notes = carried.notes_or(&format!("The workflow `{method}`."));
    let [cx, given] = ["cx", "input"].map(|name| Ident::new(name, Span::mixed_site()));
    let given_input = (sig.inputs.len() == 2).then(|| given.to_token_stream());
    // An error about the future, or the arguments' types, points at the function.
    let call = quote_spanned!(method.span()=> #method(#cx, #given_input).await);
    let unused = given_input.is_none().then(|| quote!(let () = #given;));
    Ok(quote! {
        #(#conditions)*
        #notes
        #vis struct #name;

        #(#conditions)*
        #[automatically_derived]
        impl #krate::Workflow for #name {
            const NAME: &'static str = #stored;
            type Input = #input;
            type Output = #output;

            async fn run(&self, #cx: &#krate::Steps, #given: Self::Input)
                -> ::core::result::Result<Self::Output, #krate::Failure>
            {
                #unused
                ::core::result::Result::map_err(#call, ::core::convert::Into::into)
            }
        }
    })
}

/// Types of a workflow's function.
struct Parts {
    input: Type,
    output: Type,
}

impl Parts {
    /// Reads the signature.
    ///
    /// # Errors
    /// If the function cannot be a workflow.
    fn read(function: &ItemFn) -> syn::Result<Parts> {
        let signature = &function.sig;
        if signature.asyncness.is_none() {
            let text = "a workflow waits for its steps: make it an `async fn`";
            return Err(Error::new_spanned(signature.fn_token, text));
        }
        if !signature.generics.params.is_empty() {
            let text = "a workflow has one name in the store, and so no parameters: \
                        write `impl Workflow` by hand, for each choice of them";
            return Err(Error::new_spanned(&signature.generics.params, text));
        }
        let mut types = signature.inputs.iter().map(|input| match input {
            FnArg::Typed(parameter) => Ok(&*parameter.ty),
            FnArg::Receiver(receiver) => {
                let text = "`#[workflow]` belongs on a function without `self`: \
                            for a workflow with fields, write `impl Workflow`";
                Err(Error::new_spanned(receiver, text))
            }
        });
        let text = "a workflow takes `cx: &Steps`, and one input or none";
        let steps = types.next().ok_or_else(|| Error::new_spanned(&signature.ident, text))??;
        if !matches!(steps, Type::Reference(steps) if steps.mutability.is_none()) {
            return Err(Error::new_spanned(steps, text));
        }
        let input = types.next().transpose()?.cloned().unwrap_or_else(|| parse_quote!(()));
        if let Some(third) = types.next() {
            return Err(Error::new_spanned(third?, text));
        }
        let output = output(&signature.output)
            .ok_or_else(|| {
                let text =
                    "a workflow returns `Result<T, Failure>`, or a `Result` with another error";
                Error::new_spanned(&signature.output, text)
            })?
            .clone();
        Ok(Parts { input, output })
    }
}

/// Returns the `T` of a `Result<T, …>`.
fn output(returned: &ReturnType) -> Option<&Type> {
    let ReturnType::Type(_, ty) = returned else { return None };
    let Type::Path(path) = &**ty else { return None };
    let result = path.path.segments.last().filter(|last| last.ident == "Result")?;
    let PathArguments::AngleBracketed(arguments) = &result.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(output) => Some(output),
        _ => None,
    }
}

/// Returns the name of the workflow's type: the function's name in camel case.
///
/// # Errors
/// If the name is not valid, or that of another type.
fn type_name(function: &Ident, input: &Type, output: &Type) -> syn::Result<Ident> {
    let name = generated_name(function, "workflow")?;
    match named_in(&name, [input, output].into_iter()) {
        None => Ok(name),
        Some(found) => {
            let text = format!(
                "the workflow `{function}` would be called `{name}`, like this type: \
                 rename the workflow with `#[workflow(name = …)]`"
            );
            Err(Error::new_spanned(found, text))
        }
    }
}

/// Options in `#[workflow(…)]`.
#[derive(Default)]
struct WorkflowOptions {
    name: Option<Ident>,
    stored: Option<LitStr>,
    krate: Option<Path>,
}

impl WorkflowOptions {
    fn read_option(&mut self, option: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let path = &option.path;
        if path.is_ident("name") {
            self.name = Some(option.value()?.parse()?);
        } else if path.is_ident("stored") {
            self.stored = Some(option.value()?.parse()?);
        } else if path.is_ident("crate") {
            self.krate = Some(option.value()?.call(Path::parse_mod_style)?);
        } else {
            let text = format!(
                "`#[workflow]` has no option `{}`; it takes `name = …`, `stored = \"…\"` and `crate = …`",
                path.to_token_stream()
            );
            return Err(Error::new_spanned(path, text));
        }
        Ok(())
    }
}
