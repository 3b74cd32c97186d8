//! [`Changes`]: everything that a turn of an entity changes beside the state.
//!
//! ```text
//!  cells, replies, …     ──▶ cells:    put with the turn, and shown to reads until the store shows them
//!  inbox, times          ──▶ records:  put with the turn
//!  messages, actions     ──▶ outgoing, actions: leave when the turn is submitted, or on disk
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::Arc;

use throng_store::{Batch, Outcomes, Submission};

use crate::catalogue::Number;
use crate::gate::{Held, OutputGate};
use crate::layout;
use crate::node::Inner;
use crate::tables::Tables;
use crate::{CellError, CommitError, EntityError};

/// Changes of the cells that the store may not show yet; those of the running turn among them.
#[derive(Debug, Default)]
pub(crate) struct Changes(Option<Box<Changed>>);

#[derive(Default)]
struct Changed {
    /// Changed cells by the store's keys.
    cells: BTreeMap<Box<[u8]>, OwnWrite>,
    /// Number of changes of the running turn.
    new: usize,
    /// The first error of a put or a send; it fails the turn's commit.
    fault: Option<EntityError>,
    /// Number of cells at which settled ones are removed next.
    trim_at: usize,
    /// Numbers of maps and of shapes that the running turn has used, and that may have no record yet.
    numbers: Vec<Arc<Number>>,
    /// Records of other tables that the running turn writes, or deletes.
    records: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Whatever leaves once the running turn is submitted.
    outgoing: Vec<Box<dyn Outgoing>>,
    /// Actions that follow the commit of the running turn.
    actions: Vec<Box<dyn Held>>,
    /// Token of the changes of cells that were lent, and are not here.
    lent: Option<Arc<()>>,
}

/// Something that leaves a turn once the turn is submitted, as a stored message on its way to its receiver.
pub(crate) trait Outgoing: Send {
    /// Leaves. `after` is the submission of the turn.
    fn leave(self: Box<Self>, node: &Arc<Inner>, after: Submission);
}

impl fmt::Debug for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changed").field("cells", &self.cells).finish_non_exhaustive()
    }
}

/// A change of a cell.
#[derive(Debug)]
pub(crate) struct OwnWrite {
    /// The encoded value; `None` for a deleted cell.
    pub(crate) value: Option<Box<[u8]>>,
    /// Submission of the change; `None` in the turn that makes it.
    submission: Option<Submission>,
}

/// Least number of cells at which settled ones are removed although others are not settled.
const TRIM_MIN: usize = 8;

impl Changes {
    /// Whether the running turn has changed neither a cell nor a record of another table.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|changed| {
            changed.new == 0 && changed.fault.is_none() && changed.lent.is_none()
        })
    }

    /// Whether the running turn has changed a cell.
    pub(crate) fn has_cells(&self) -> bool {
        self.0.as_ref().is_some_and(|changed| changed.new > changed.records.len())
    }

    /// Adds the changes of the running turn to its batch.
    pub(crate) fn add_to(
        &mut self,
        mut batch: Batch,
        tables: &Tables,
        outcomes: &Outcomes,
    ) -> Result<Batch, EntityError> {
        self.check()?;
        let Some(changed) = &mut self.0 else { return Ok(batch) };
        if changed.new > 0 {
            for (key, write) in changed.cells.iter().filter(|(_, own)| own.submission.is_none()) {
                batch = match &write.value {
                    Some(value) => batch.put(tables.at(key), key, value),
                    None => batch.delete(tables.at(key), key),
                };
            }
            for (key, value) in &changed.records {
                batch = match value {
                    Some(value) => batch.put(tables.at(key), key, value),
                    None => batch.delete(tables.at(key), key),
                };
            }
        }
        Ok(changed
            .numbers
            .iter()
            .fold(batch, |batch, number| number.add_to(batch, tables, outcomes)))
    }

    /// Notes the submission of the turn's changes.
    pub(crate) fn submitted(&mut self, submission: Submission) {
        if let Some(changed) = &mut self.0
            && mem::take(&mut changed.new) > 0
        {
            for own in changed.cells.values_mut() {
                own.submission.get_or_insert(submission);
            }
            changed.records.clear();
            changed.numbers.drain(..).for_each(|number| number.submitted(submission));
        }
    }

    /// Adds a record of another table to the running turn's changes, or its deletion.
    pub(crate) fn set_record(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let changed = self.0.get_or_insert_default();
        changed.records.push((key, value));
        changed.new += 1;
    }

    /// Adds a cell or another record, or its deletion, which [`own`](Changes::own) shows until the store does.
    /// `numbers` are those in it that may have no record yet.
    pub(crate) fn set_own(
        &mut self,
        key: Vec<u8>,
        value: Option<Box<[u8]>>,
        numbers: impl IntoIterator<Item = Arc<Number>>,
    ) {
        let changed = self.0.get_or_insert_default();
        changed.cells.insert(key.into(), OwnWrite { value, submission: None });
        changed.new += 1;
        for number in numbers {
            changed.use_number(number);
        }
    }

    /// Returns the record with this key as the running turn or an earlier one has left it; `None` if the store shows it.
    pub(crate) fn own(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let own = self.0.as_ref()?.cells.get(key)?;
        Some(own.value.as_deref())
    }

    /// Adds numbers of the running turn that may have no record yet.
    pub(crate) fn use_numbers(&mut self, numbers: impl IntoIterator<Item = Arc<Number>>) {
        let changed = self.0.get_or_insert_default();
        numbers.into_iter().for_each(|number| changed.use_number(number));
    }

    /// Adds something that leaves once the running turn is submitted.
    pub(crate) fn leave_later(&mut self, outgoing: Box<dyn Outgoing>) {
        self.0.get_or_insert_default().outgoing.push(outgoing);
    }

    /// Takes what leaves since the turn was submitted.
    pub(crate) fn take_outgoing(&mut self) -> Vec<Box<dyn Outgoing>> {
        self.0.as_mut().map(|changed| mem::take(&mut changed.outgoing)).unwrap_or_default()
    }

    /// Takes the error by which the commit of the running turn fails, if there is one.
    pub(crate) fn check(&mut self) -> Result<(), EntityError> {
        let Some(changed) = &mut self.0 else { return Ok(()) };
        let is_lent = changed.lent.is_some();
        match changed.fault.take() {
            Some(fault) => Err(fault),
            None if is_lent => Err(EntityError::NotCommitted(CommitError::Cell(CellError::Taken))),
            None => Ok(()),
        }
    }

    /// Takes out the changes of cells, until they are [taken back](Changes::take_back) with the same token; `None` if they
    /// are lent already.
    pub(crate) fn lend(&mut self) -> Option<(Changes, Arc<()>)> {
        let changed = self.0.get_or_insert_default();
        if changed.lent.is_some() {
            return None;
        }
        let mut cells = changed.cells.split_off(layout::CELLS);
        changed.cells.append(&mut cells.split_off(&*layout::after(layout::CELLS)));
        let lent = Changed { cells, ..Changed::default() };
        let token = changed.lent.insert(Arc::new(())).clone();
        Some((Changes(Some(Box::new(lent))), token))
    }

    /// Puts back changes that were lent with this token.
    ///
    /// # Errors
    ///
    /// Hands back the changes, which are not of the running turn.
    pub(crate) fn take_back(&mut self, mut lent: Changes, token: &Arc<()>) -> Result<(), Changes> {
        let own = self
            .0
            .as_mut()
            .filter(|own| own.lent.as_ref().is_some_and(|own| Arc::ptr_eq(own, token)));
        let Some(own) = own else { return Err(lent) };
        own.lent = None;
        if let Some(mut lent) = lent.0.take() {
            own.cells.append(&mut lent.cells);
            own.new += lent.new;
            own.fault = own.fault.take().or(lent.fault.take());
            lent.numbers.drain(..).for_each(|number| own.use_number(number));
        }
        Ok(())
    }

    /// Whether the changes of cells are lent.
    pub(crate) fn is_lent(&self) -> bool {
        self.0.as_ref().is_some_and(|changed| changed.lent.is_some())
    }

    /// Fails the commit of the running turn, unless it fails already.
    pub(crate) fn fail(&mut self, fault: EntityError) {
        self.0.get_or_insert_default().fault.get_or_insert(fault);
    }

    /// Removes changes that the store shows, if there are many.
    pub(crate) fn forget_settled(&mut self, gate: &OutputGate) {
        if let Some(changed) = &mut self.0
            && changed.cells.len() >= changed.trim_at
        {
            changed.cells.retain(|_, own| own.submission.is_none_or(|own| !gate.is_settled(own)));
            changed.trim_at = (2 * changed.cells.len()).max(TRIM_MIN);
        }
    }

    /// Adds an action that follows the commit of the running turn.
    pub(crate) fn add_action(&mut self, action: impl Held + 'static) {
        self.0.get_or_insert_default().actions.push(Box::new(action));
    }

    /// Whether the running turn has actions.
    pub(crate) fn has_actions(&self) -> bool {
        self.0.as_ref().is_some_and(|changed| !changed.actions.is_empty())
    }

    /// Takes the actions of the running turn.
    pub(crate) fn take_actions(&mut self) -> Vec<Box<dyn Held>> {
        self.0.as_mut().map(|changed| mem::take(&mut changed.actions)).unwrap_or_default()
    }

    /// Returns the changed cells by the store's keys.
    pub(crate) fn cells(&self) -> Option<&BTreeMap<Box<[u8]>, OwnWrite>> {
        self.0.as_ref().map(|changed| &changed.cells)
    }
}

impl Changed {
    /// Notes a number that may have no record yet.
    fn use_number(&mut self, number: Arc<Number>) {
        if !self.numbers.iter().any(|known| Arc::ptr_eq(known, &number)) {
            self.numbers.push(number);
        }
    }
}
