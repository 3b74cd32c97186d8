//! Selection of the impl block's parameters that a message needs.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::punctuated::Punctuated;
use syn::{GenericParam, Generics, Ident};

/// Returns the parameters that a message needs: the parameters in its types, in the bounds of
/// these, and so on; with all bounds that name only needed parameters.
pub(crate) fn needed(generics: &Generics, types: &[TokenStream]) -> Generics {
    let names: Vec<&Ident> = generics.params.iter().filter_map(name).collect();
    let bounds = bounds(generics);
    let mut is_needed: Vec<bool> =
        names.iter().map(|name| types.iter().any(|ty| mentions(ty, name))).collect();
    loop {
        let before = is_needed.clone();
        for bound in &bounds {
            let mentioned: Vec<bool> = names.iter().map(|name| mentions(bound, name)).collect();
            if mentioned.iter().zip(&before).any(|(&mentioned, &needed)| mentioned && needed) {
                is_needed.iter_mut().zip(mentioned).for_each(|(needed, also)| *needed |= also);
            }
        }
        if before == is_needed {
            break;
        }
    }
    let is_in = |tokens: &TokenStream, needed: bool| {
        names.iter().zip(&is_needed).any(|(name, &is)| is == needed && mentions(tokens, name))
    };
    let mut kept = generics.clone();
    kept.params = generics
        .params
        .iter()
        .filter(|param| is_in(&param.to_token_stream(), true))
        .cloned()
        .collect();
    if let Some(clause) = &mut kept.where_clause {
        let predicates = std::mem::take(&mut clause.predicates).into_iter();
        clause.predicates = predicates
            .filter(|predicate| {
                let predicate = predicate.to_token_stream();
                is_in(&predicate, true) && !is_in(&predicate, false)
            })
            .collect::<Punctuated<_, _>>();
    }
    kept
}

/// Returns a marker type with the type parameters of `generics` that do not occur in `types`;
/// `None` if all of them do.
pub(crate) fn marker(generics: &Generics, types: &[TokenStream]) -> Option<TokenStream> {
    let missing: Vec<&Ident> = generics
        .type_params()
        .map(|param| &param.ident)
        .filter(|name| !types.iter().any(|ty| mentions(ty, name)))
        .collect();
    // As a function's result, a parameter affects neither the auto traits nor the drop check.
    (!missing.is_empty()).then(|| quote!(::core::marker::PhantomData<fn() -> (#(#missing,)*)>))
}

/// Whether an identifier occurs anywhere in the tokens.
fn mentions(tokens: &TokenStream, name: &Ident) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == *name,
        TokenTree::Group(group) => mentions(&group.stream(), name),
        _ => false,
    })
}

fn name(param: &GenericParam) -> Option<&Ident> {
    match param {
        GenericParam::Type(param) => Some(&param.ident),
        GenericParam::Const(param) => Some(&param.ident),
        _ => None,
    }
}

/// Returns each bound as tokens, from the parameters and from the where clause.
fn bounds(generics: &Generics) -> Vec<TokenStream> {
    let inline = generics.params.iter().map(ToTokens::to_token_stream);
    let clause = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    inline.chain(clause.map(ToTokens::to_token_stream)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::{ItemImpl, parse_quote};

    fn needed_of(block: ItemImpl, types: &[TokenStream]) -> String {
        let generics = needed(&block.generics, types);
        let clause = &generics.where_clause;
        quote!(#generics #clause).to_string()
    }

    #[test]
    fn a_message_has_no_more_parameters_than_it_needs() {
        let block: ItemImpl = parse_quote!(
            impl<K: Send, V: Send> Cache<K, V> where V: Sync {}
        );
        let expected = quote!(<K: Send>).to_string();
        assert_eq!(needed_of(block, &[quote!(Option<K>)]).replace(" where", ""), expected);
    }

    #[test]
    fn a_bound_brings_the_parameters_it_names() {
        let block: ItemImpl = parse_quote!(
            impl<K, V, W> Cache<K, V, W>
            where
                K: Into<V>,
                W: Send,
            {
            }
        );
        let expected = quote!(<K, V> where K: Into<V>).to_string();
        assert_eq!(needed_of(block, &[quote!(K)]).replace(", where", " where"), expected);
    }

    #[test]
    fn a_parameter_that_no_field_names_is_in_the_marker() {
        let block: ItemImpl = parse_quote!(
            impl<K, V, const N: usize> Cache<K, V, N> {}
        );
        assert!(marker(&block.generics, &[quote!(K), quote!([V; N])]).is_none());
        let marker = marker(&block.generics, &[quote!(K)]).map(|marker| marker.to_string());
        assert!(marker.is_some_and(|marker| marker.contains("(V ,)")));
    }
}
