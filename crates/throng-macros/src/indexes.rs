//! The indexes of an entity's state, from `#[durable(index)]` on its fields.
//!
//! ```text
//! #[durable(index = "mail", unique)]        impl User {
//! email: String,                   ──▶          pub const EMAIL: Index<User, str> = …;
//!                                           }
//! ```

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, LitStr, Path, Type};

use crate::attributes::Carried;
use crate::durable::join;

/// Longest name of an index, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The indexes of a type.
pub(crate) struct Indexes(Vec<FieldIndex>);

/// The index of a field.
struct FieldIndex {
    field: Ident,
    ty: Type,
    name: LitStr,
    is_unique: bool,
    conditions: Vec<Attribute>,
}

impl Indexes {
    /// Reads the attributes of all fields.
    pub(crate) fn read(item: &DeriveInput) -> syn::Result<Indexes> {
        let mut indexes: Vec<FieldIndex> = Vec::new();
        let mut refusals = Vec::new();
        for (field, is_of_enum) in fields(item) {
            match FieldIndex::read(field, is_of_enum) {
                Ok(Some(index)) => {
                    if indexes.iter().any(|other| other.name.value() == index.name.value()) {
                        refusals
                            .push(Error::new_spanned(&index.name, "two indexes have this name"));
                    }
                    indexes.push(index);
                }
                Ok(None) => {}
                Err(error) => refusals.push(error),
            }
        }
        match refusals.into_iter().reduce(join) {
            Some(error) => Err(error),
            None => Ok(Indexes(indexes)),
        }
    }

    /// Returns a constant for each index.
    pub(crate) fn constants(&self, item: &DeriveInput, krate: &Path) -> Option<TokenStream> {
        let (name, visibility) = (&item.ident, &item.vis);
        let constants = self.0.iter().map(|index| {
            let FieldIndex { field, ty, name, is_unique, conditions } = index;
            let constant = index.constant();
            let text = format!("Index of the entities by `{field}`.");
            let key = Ident::new("key", proc_macro2::Span::mixed_site());
            let state = Ident::new("state", proc_macro2::Span::mixed_site());
            // An error about a type without a key points at the type.
            let of = quote_spanned!(ty.span()=> <#ty as #krate::IndexField>);
            quote! {
                #(#conditions)*
                #[doc = #text]
                #visibility const #constant: #krate::Index<Self, #of::Key> =
                    #krate::Index::new(#name, #is_unique, |#state, #key| {
                        #of::encode_into(&#state.#field, #key)
                    });
            }
        });
        let is_empty = self.0.is_empty();
        (!is_empty).then(|| {
            quote! {
                #[automatically_derived]
                #[allow(dead_code)]
                impl #name {
                    #(#constants)*
                }
            }
        })
    }

    /// Returns the list of the definitions.
    pub(crate) fn definitions(&self, name: &Ident, krate: &Path) -> Option<TokenStream> {
        let definitions = self.0.iter().map(|index| {
            let (constant, conditions) = (index.constant(), &index.conditions);
            quote!(#(#conditions)* #name::#constant.definition())
        });
        let is_empty = self.0.is_empty();
        (!is_empty).then(|| {
            quote! {
                const INDEXES: &'static [#krate::IndexDefinition<Self>] = &[#(#definitions),*];
            }
        })
    }
}

/// Returns all fields, and whether they are those of an enum.
fn fields(item: &DeriveInput) -> Vec<(&Field, bool)> {
    match &item.data {
        Data::Struct(data) => data.fields.iter().map(|field| (field, false)).collect(),
        Data::Enum(data) => {
            let variants = data.variants.iter().map(|variant| &variant.fields);
            variants.flat_map(Fields::iter).map(|field| (field, true)).collect()
        }
        Data::Union(_) => Vec::new(),
    }
}

impl FieldIndex {
    /// Reads the attributes of a field; `None` if it has no index.
    fn read(field: &Field, is_of_enum: bool) -> syn::Result<Option<FieldIndex>> {
        let ours = field.attrs.iter().filter(|attribute| attribute.path().is_ident("durable"));
        let (mut index, mut name, mut unique) = (None, None, None);
        for attribute in ours {
            attribute.parse_nested_meta(|option| {
                let path = option.path.clone();
                let is_second = if path.is_ident("index") {
                    if option.input.peek(syn::Token![=]) {
                        name = Some(option.value()?.parse::<LitStr>()?);
                    }
                    index.replace(path.clone()).is_some()
                } else if path.is_ident("unique") {
                    unique.replace(path.clone()).is_some()
                } else {
                    let text =
                        "`#[durable]` on a field takes `index`, `index = \"…\"` and `unique`";
                    return Err(Error::new_spanned(path, text));
                };
                match is_second {
                    true => Err(Error::new_spanned(path, "duplicate option")),
                    false => Ok(()),
                }
            })?;
        }
        let Some(index) = index else {
            return unique.map_or(Ok(None), |unique| {
                let text = "a field is unique by its index: write `#[durable(index, unique)]`";
                Err(Error::new_spanned(unique, text))
            });
        };
        let refused = |text: &str| Err(Error::new_spanned(&index, text));
        let Some(own) = field.ident.clone().filter(|_| !is_of_enum) else {
            return refused("an index is of a field with a name in a struct");
        };
        if is_skipped(field) {
            return refused("a field that is not stored has no index");
        }
        let name = name
            .unwrap_or_else(|| LitStr::new(own.to_string().trim_start_matches("r#"), own.span()));
        let bytes = name.value().len();
        if bytes == 0 || bytes > NAME_BYTES_MAX || name.value().contains('\0') {
            let text =
                format!("the name of an index has 1 to {NAME_BYTES_MAX} bytes and no zero byte");
            return Err(Error::new_spanned(name, text));
        }
        let conditions = Carried::of(&field.attrs).conditions;
        let (ty, is_unique) = (field.ty.clone(), unique.is_some());
        Ok(Some(FieldIndex { field: own, ty, name, is_unique, conditions }))
    }

    /// Returns the name of the constant.
    fn constant(&self) -> Ident {
        let name = self.field.to_string().trim_start_matches("r#").to_uppercase();
        format_ident!("{name}", span = self.field.span())
    }
}

/// Whether serde skips the field.
fn is_skipped(field: &Field) -> bool {
    let mut is_skipped = false;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        // An attribute that serde does not know is its own error.
        let _ = attribute.parse_nested_meta(|option| {
            let skips = ["skip", "skip_serializing", "skip_deserializing"];
            is_skipped |= skips.iter().any(|skip| option.path.is_ident(skip));
            if option.input.peek(syn::Token![=]) {
                option.value()?.parse::<syn::Expr>()?;
            }
            Ok(())
        });
    }
    is_skipped
}
