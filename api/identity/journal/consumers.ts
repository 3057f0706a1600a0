/** Consumers of the journal have names that begin so: retention keeps what one of them has not read. */
export const JOURNAL_CONSUMERS = 'journal.'
