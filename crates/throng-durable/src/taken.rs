//! [`TakenCells`]: the cells of an entity, lent to an engine for a part of a turn.
//!
//! ```text
//!  cx.take_cells() ──▶ TakenCells ──▶ engine: reads, writes ──▶ cx.put_back(taken) ──▶ the turn's commit
//!                          └──(dropped, kept, or put back elsewhere)──▶ the turn fails
//! ```
//!
//! Invariant: the changes of the cells are in one place, with the entity or with the value that was taken, and a turn
//! does not commit while they are elsewhere. Each value has a token, which only its own turn takes back, so values of
//! two turns that were exchanged fit neither.

use std::fmt;
use std::sync::{Arc, Weak};

use serde::Serialize;
use serde::de::DeserializeOwned;
use throng_store::Codec;

use crate::activation::Activation;
use crate::changes::Changes;
use crate::node::Inner;
use crate::tables::Tables;
use crate::{CellError, Cells, Durable, MAP_NAME_BYTES_MAX};

/// The cells of an entity as an owned value, from [`DurableContext::take_cells`](crate::DurableContext::take_cells).
///
/// A sandbox or a scripting engine keeps its host's data as an owned value, and cannot borrow a context. So the turn
/// takes the cells out of the context, moves them into the engine, and [puts them
/// back](crate::DurableContext::put_back). They may be used on any thread. What is written after the turn has ended is
/// lost.
pub struct TakenCells {
    node: Weak<Inner>,
    tables: Tables,
    kind: &'static str,
    state_key: Box<[u8]>,
    changes: Changes,
    token: Arc<()>,
}

impl TakenCells {
    /// Returns a map of the cells, as [`DurableContext::cells`](crate::DurableContext::cells) does.
    pub fn cells<K: Codec, V: Serialize + DeserializeOwned + 'static>(
        &mut self,
        map: &str,
    ) -> Cells<'_, K, V> {
        let map = match (map.len(), self.node.upgrade()) {
            (_, None) => Err(CellError::Inactive),
            (0..=MAP_NAME_BYTES_MAX, Some(node)) => {
                node.catalogue.map(self.kind, map).ok_or(CellError::TooManyMaps)
            }
            (bytes, _) => Err(CellError::NameTooLong { bytes }),
        };
        Cells::new(Some(&self.tables), map, &self.state_key, &mut self.changes)
    }
}

impl<P: Durable> Activation<P> {
    pub(crate) fn take_cells(&mut self) -> Result<TakenCells, CellError> {
        if !self.is_in_turn() {
            return Err(CellError::Inactive);
        }
        let node = self.node().clone();
        let (changes, token) = self.changes().lend().ok_or(CellError::Taken)?;
        Ok(TakenCells {
            node: Arc::downgrade(&node),
            tables: node.tables.clone(),
            kind: P::KIND,
            state_key: self.name().state_key().into(),
            changes,
            token,
        })
    }

    pub(crate) fn put_back(&mut self, taken: TakenCells) -> Result<(), TakenCells> {
        let TakenCells { node, tables, kind, state_key, changes, token } = taken;
        match self.changes().take_back(changes, &token) {
            Ok(()) => Ok(()),
            Err(changes) => Err(TakenCells { node, tables, kind, state_key, changes, token }),
        }
    }
}

impl fmt::Debug for TakenCells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TakenCells").field("kind", &self.kind).finish_non_exhaustive()
    }
}
