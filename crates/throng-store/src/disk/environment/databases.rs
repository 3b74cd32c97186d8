//! The databases of a store by their names.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};

use super::Environment;
use crate::DatabaseError;
use crate::disk::format;
use crate::table::{Kind, TableRef};

const DATABASE_NAME_BYTES_MAX: usize = 500;

impl Environment {
    /// Opens a named database, and creates it if it does not exist; creation waits for a commit.
    pub(crate) fn open_database(
        &self,
        name: &str,
        kind: Kind,
        make: bool,
    ) -> Result<TableRef, DatabaseError> {
        if name.is_empty() || name.len() > DATABASE_NAME_BYTES_MAX || name.contains('\0') {
            return Err(DatabaseError::Name);
        }
        let known = || self.named().get(name).copied();
        let fits = |table_ref: TableRef| {
            let other = || DatabaseError::Kind { name: name.into() };
            if table_ref.kind == kind { Ok(table_ref) } else { Err(other()) }
        };
        if let Some(table_ref) = known() {
            return fits(table_ref);
        }
        let missing = || DatabaseError::Missing { name: name.into() };
        if !make && !self.is_read_only() {
            // No other process makes any.
            return Err(missing());
        }
        match self.log() {
            Some(mut log) => {
                // Another thread may have created it while this thread waited for the lock.
                if let Some(table_ref) = known() {
                    return fits(table_ref);
                }
                // Positions of a copy are those of the shared log, and all copies have the same databases.
                let positions = if log.stamp().is_some() { 0 } else { 1 };
                self.commit_in_engine(&mut log, positions, |env, at| {
                    let made = format::make_database(env, self.format, name, kind, at)?;
                    self.named().insert(name.into(), made);
                    Ok(made)
                })
                .map_err(DatabaseError::from_engine)
            }
            None => {
                let _writing = self.writing();
                let env = self.env().ok_or(DatabaseError::Recovering)?;
                let found = format::find_database(&env, self.format, name, kind);
                let found = found.map_err(DatabaseError::from_engine)?.ok_or_else(missing)?;
                self.named().insert(name.into(), found);
                fits(found)
            }
        }
    }

    /// Returns a number above those of all tables that records may name.
    pub(crate) fn tables_end(&self) -> u32 {
        format::tables_end(self.named().len())
    }

    pub(crate) fn databases(&self) -> Vec<(String, TableRef)> {
        self.named().iter().map(|(name, table_ref)| (name.clone(), *table_ref)).collect()
    }

    pub(super) fn named(&self) -> MutexGuard<'_, BTreeMap<String, TableRef>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
