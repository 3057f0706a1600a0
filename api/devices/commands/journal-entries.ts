/** Journal records of commands: one for each transition. Neither payloads nor results are in them. */
import type { JournalEntry } from '#api/identity/index.ts'
import type { Told } from './repository.ts'

export type CommandOperation = 'create' | 'deliver' | 'answer' | 'cancel' | 'expire' | 'late'

export function entryOf(
  operation: CommandOperation,
  { domainKey, clientKey, clientId, id, name, status }: Told,
): JournalEntry {
  return {
    operation: `command.${operation}`,
    domainKey,
    entityKeys: [clientKey],
    attributes: { id, client_id: clientId, name, status },
  }
}
