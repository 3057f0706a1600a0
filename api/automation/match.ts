/** Which records of a message start a task (task-manager.md section 5). Pure. */

export type TriggerRow = {
  task_key: number
  channel_key: number
  subtopic: string
  name: string | null
  comparator: 'eq' | 'lt' | 'le' | 'gt' | 'ge' | null
  value: number | null
}

/** A resolved record as SenML names its fields. */
export type SenmlRecord = { n: string; t: number; v?: number; s?: number; vb?: boolean }

/** The records that meet the trigger, in their order. */
export function matchingRecords<R extends SenmlRecord>(
  trigger: TriggerRow,
  subtopic: string,
  records: readonly R[],
): R[] {
  if (!covers(trigger.subtopic, subtopic)) return []
  return records.filter((record) => {
    if (trigger.name !== null && trigger.name !== record.n) return false
    return trigger.comparator === null || trigger.value === null || compares(record, trigger.comparator, trigger.value)
  })
}

function covers(wanted: string, subtopic: string): boolean {
  return wanted === '' || subtopic === wanted || subtopic.startsWith(`${wanted}.`)
}

function compares(record: SenmlRecord, comparator: NonNullable<TriggerRow['comparator']>, value: number): boolean {
  const number = record.v ?? record.s ?? (record.vb === undefined ? undefined : Number(record.vb))
  if (number === undefined) return false
  switch (comparator) {
    case 'eq':
      return number === value
    case 'lt':
      return number < value
    case 'le':
      return number <= value
    case 'gt':
      return number > value
    case 'ge':
      return number >= value
  }
}
