/** Prefix of the consumers of the journal. Retention keeps records that one of them has not read. */
export const JOURNAL_CONSUMERS = 'journal.'
