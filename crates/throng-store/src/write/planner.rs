//! [`Planner`]: turns the requests of a group into the changes of a record.
//!
//! A change states an outcome: the value of a key, or that the key is deleted. Most requests need no
//! reading. A counter, a `put_new` and an update read the state before them: the store as it is, with the
//! changes that the group has planned so far on top.

use std::io;
use std::sync::Arc;

use crate::disk::environment::Environment;
use crate::disk::lmdb::ReadTxn;
use crate::disk::record;
use crate::memtable::change::{Changes, Operation};
use crate::memtable::{Layers, Memtable};
use crate::read::state::State;
use crate::table::{Kind, TableRef};
use crate::write::batch::{Change, counter};
use crate::write::commit::Failure;
use crate::write::copy::InFlight;
use crate::write::queue::Request;
use crate::write::submission::Submitted;
use crate::write::ticket::Work;
use crate::write::update::Update;
use crate::{Batch, ReadError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Applied,
    /// Skipped because a key of a `put_new` exists.
    KeyExists,
}

/// Plans the changes of a group. The caller holds the log, so nothing else is committed meanwhile.
pub(crate) struct Planner<'w> {
    environment: &'w Environment,
    first: u64,
    changes: Changes,
    deletes: bool,
    /// Whether a change puts more than a counter.
    puts: bool,
    /// The state to read, begun by the first request that reads.
    base: Option<Base>,
    /// Changes in flight, which are over the visible state, in a copy of a shared log.
    in_flight: Option<InFlight<'w>>,
}

/// The state before the group, and the group's own changes over it.
struct Base {
    txn: ReadTxn,
    layers: Layers,
    planned: Arc<Memtable>,
    /// End of the changes that `planned` has, for [`Changes::after`].
    seen: (usize, usize),
}

impl<'w> Planner<'w> {
    /// Begins a plan whose first change gets the position `first`.
    pub(crate) fn new(environment: &'w Environment, first: u64) -> Planner<'w> {
        let changes = Changes::default();
        let (deletes, puts, base, in_flight) = (false, false, None, None);
        Planner { environment, first, changes, deletes, puts, base, in_flight }
    }

    /// Makes the planner read changes in flight over the visible state.
    pub(crate) fn over(self, in_flight: InFlight<'w>) -> Planner<'w> {
        Planner { in_flight: Some(in_flight), ..self }
    }

    /// Plans the changes of the group, and stores the outcome of each request in `outcomes`. Returns the
    /// changes, and whether they make room: they delete, and put nothing but counters.
    pub(crate) fn plan(
        mut self,
        group: &mut [Request],
        outcomes: &mut [Outcome],
    ) -> Result<(Changes, bool), Failure> {
        let planned = self.plan_all(group, outcomes);
        if let Some(base) = self.base {
            self.environment.readers().end_reserved(base.txn);
        }
        planned.map(|()| (self.changes, self.deletes && !self.puts))
    }

    fn plan_all(&mut self, group: &mut [Request], outcomes: &mut [Outcome]) -> Result<(), Failure> {
        let bytes = group.iter().filter_map(Request::batch).map(Batch::bytes).sum();
        self.changes.reserve(bytes);
        for (request, outcome) in group.iter_mut().zip(outcomes) {
            match &mut request.work {
                Work::Batch(batch) if self.key_exists(batch)? => *outcome = Outcome::KeyExists,
                Work::Batch(batch) | Work::Submitted(Submitted { batch, .. }) => {
                    self.plan_batch(batch)?;
                }
                Work::Update(job) => {
                    let position = self.first + u64::from(self.changes.count());
                    let mut update =
                        Update::new(self.environment.readers(), self.state()?, position);
                    let applies = job.run(&mut update);
                    let batch = update.into_batch();
                    if applies {
                        self.plan_batch(&batch)?;
                    }
                }
                Work::Sync => {}
            }
        }
        Ok(())
    }

    fn plan_batch(&mut self, batch: &Batch) -> Result<(), Failure> {
        for (table_ref, key, change) in batch.operations() {
            self.plan_change(table_ref, key, change)?;
        }
        Ok(())
    }

    fn plan_change(
        &mut self,
        table_ref: TableRef,
        key: &[u8],
        change: Change<'_>,
    ) -> Result<(), Failure> {
        let several = table_ref.kind == Kind::Duplicates;
        match change {
            Change::Put(_) | Change::PutNew(_) => self.puts = true,
            Change::Delete | Change::DeleteValue(_) | Change::Clear => self.deletes = true,
            Change::Add(_) => {}
        }
        match change {
            Change::Put(value) | Change::PutNew(value) => self.put(table_ref, key, value),
            Change::Add(difference) => {
                let stored = self.read(table_ref, key)?;
                // A damaged counter restarts at zero.
                let value = stored.and_then(|stored| table_ref.value(key, stored).ok());
                let sum = value.map_or(0, counter).wrapping_add(difference);
                self.put(table_ref, key, &sum.to_le_bytes());
            }
            Change::Delete if several => self.push(Operation::DeleteAll, table_ref, key, &[], &[]),
            Change::Delete => self.push(Operation::Delete, table_ref, key, &[], &[]),
            // A value without bytes is never among several.
            Change::DeleteValue([]) => {}
            Change::DeleteValue(value) => {
                self.push(Operation::DeleteValue, table_ref, key, &[], value);
            }
            Change::Clear => self.push(Operation::Clear, table_ref, &[], &[], &[]),
        }
        Ok(())
    }

    fn put(&mut self, table_ref: TableRef, key: &[u8], value: &[u8]) {
        match table_ref.kind {
            Kind::Checked => {
                let header = record::header(key, value);
                self.push(Operation::Put, table_ref, key, &header, value);
            }
            Kind::Plain => self.push(Operation::Put, table_ref, key, &[], value),
            Kind::Duplicates => self.push(Operation::PutValue, table_ref, key, &[], value),
        }
    }

    fn push(
        &mut self,
        operation: Operation,
        table_ref: TableRef,
        key: &[u8],
        header: &[u8],
        value: &[u8],
    ) {
        self.changes.push(operation, table_ref.table, key, [header, value]);
    }

    fn key_exists(&mut self, batch: &Batch) -> Result<bool, Failure> {
        if !batch.is_conditional() {
            return Ok(false);
        }
        for (table_ref, key, change) in batch.operations() {
            if matches!(change, Change::PutNew(_)) && self.read(table_ref, key)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the stored bytes of a key after the changes planned so far.
    fn read(&mut self, table_ref: TableRef, key: &[u8]) -> Result<Option<&[u8]>, Failure> {
        let environment = self.environment;
        let stored = self.state()?.stored(table_ref, key);
        stored.map_err(|error| Failure::of_engine(environment, error))
    }

    /// Returns the state after the changes planned so far.
    fn state(&mut self) -> Result<State<'_>, Failure> {
        if self.base.is_none() {
            let (txn, layers) =
                self.environment.readers().begin_reserved().map_err(|error| match error {
                    ReadError::Recovering => Failure::Recovering,
                    error => Failure::Failed(io::Error::other(error)),
                })?;
            let tables = self.environment.readers().tables_max();
            let planned = Arc::new(Memtable::new(tables, 0));
            let in_flight = self.in_flight.as_mut().and_then(|changes| changes.memtable(tables));
            let layers = in_flight.map_or(layers.clone(), |changes| layers.under(changes));
            let layers = layers.under(planned.clone());
            self.base = Some(Base { txn, layers, planned, seen: (0, 0) });
        }
        let Some(base) = &mut self.base else { unreachable!("it was set above") };
        let planned = base.planned.changes();
        if planned < self.changes.count() as usize {
            let first = self.first + planned as u64;
            base.planned.add_all(first, self.changes.after(&mut base.seen).map(Box::from));
        }
        Ok(State { txn: &base.txn, layers: &base.layers })
    }
}
