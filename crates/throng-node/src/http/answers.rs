//! Counts of answers, by route and by class of their status.
//!
//! ```text
//! request ──► router: the matching route is noted ──► handler ──► answer ──► counted under the noted route
//! ```
//!
//! Invariant: a route is a template of the router, such as `/users/{name}`, and never the path of a request, so no
//! client makes the table grow.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::StatusCode;
use tower::util::MapRequestLayer;

/// Number of answers by route and class of status. Clones share the counts.
///
/// The counts include the answers to requests that are refused before they have a route, to requests that time out, and
/// to connections beyond a limit.
#[derive(Clone, Debug, Default)]
pub struct Answers(Arc<RwLock<HashMap<Box<str>, Classes>>>);

/// Counts of the classes 1xx to 5xx.
type Classes = [AtomicU64; 5];

impl Answers {
    /// Returns each route with its counts of the classes 1xx to 5xx, in the order of the routes. The answers to requests
    /// without a route have an empty one.
    pub fn counts(&self) -> Vec<(String, [u64; 5])> {
        let routes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let load = |classes: &Classes| {
            // Relaxed, here and below: the counts guard no other data.
            classes.each_ref().map(|count| count.load(Ordering::Relaxed))
        };
        let mut counts: Vec<(String, [u64; 5])> =
            routes.iter().map(|(route, classes)| (route.to_string(), load(classes))).collect();
        drop(routes);
        counts.sort_unstable();
        counts
    }

    /// Returns the counts of the classes 1xx to 5xx over all routes.
    pub fn sums(&self) -> [u64; 5] {
        let mut sums = [0; 5];
        for (_, classes) in self.counts() {
            sums.iter_mut().zip(classes).for_each(|(sum, count)| *sum += count);
        }
        sums
    }

    /// Counts an answer to a request of `route`, or to a request without one.
    pub(crate) fn count(&self, route: Option<&MatchedPath>, status: StatusCode) {
        let route = route.map_or("", MatchedPath::as_str);
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        let add = |classes: &Classes| classes[class].fetch_add(1, Ordering::Relaxed);
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(route).map(add);
        if known.is_none() {
            let mut routes = self.0.write().unwrap_or_else(PoisonError::into_inner);
            add(routes.entry(route.into()).or_default());
        }
    }
}

/// Place in which a router notes the route of the request that a connection answers. A connection answers its requests
/// one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteNote(Arc<Mutex<Option<MatchedPath>>>);

impl RouteNote {
    /// Returns the route that was noted since the last call.
    pub(crate) fn take(&self) -> Option<MatchedPath> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Makes a router note the route of each request that has a [`RouteNote`].
pub(crate) fn noting(router: Router) -> Router {
    router.layer(MapRequestLayer::new(|request: Request| {
        if let Some(note) = request.extensions().get::<RouteNote>() {
            let route = request.extensions().get::<MatchedPath>().cloned();
            *note.0.lock().unwrap_or_else(PoisonError::into_inner) = route;
        }
        request
    }))
}
