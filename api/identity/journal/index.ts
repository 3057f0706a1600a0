export { startJournal } from './journal.ts'
export type { Actor, ChangeListener, Journal, JournalEntry, Recorder } from './journal.ts'
