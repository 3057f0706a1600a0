/** The fields of a rule from the body of a request. */
import { isId } from '#core/ids.ts'
import { refusedField } from '#core/errors/index.ts'
import type { RuleFields } from './repository.ts'
import type { RuleDefinition, RuleUpdate } from './schema.ts'

const SHAPE = ['for', 'clear_when', 'clear_for', 'cooldown', 'severity', 'window_time', 'actions'] as const

/** Absent fields are those of before. Throws `malformed` for texts that are no ids. */
export function fieldsOf(input: RuleUpdate, before?: RuleFields): RuleFields {
  const source = input.source ?? before?.definition.source
  if (source === undefined) throw new Error('a new rule has a source')
  const { condition_task: taskBefore, ...rest } = before?.definition ?? {}
  // A condition of another source is not one of this, whether an expression or a function.
  const isSame = before?.definition.source.type === source.type
  const kept = isSame ? before.definition.condition : ''
  // One of the two takes the place of the other.
  const isReplaced = (input.condition ?? '') !== '' && input.condition_task === undefined
  const task = input.condition_task ?? (isReplaced || !isSame ? '' : (taskBefore ?? ''))
  const condition = input.condition ?? ((input.condition_task ?? '') === '' ? kept : '')
  const definition: RuleDefinition = { ...rest, source, condition, ...(task === '' ? {} : { condition_task: task }) }
  for (const field of SHAPE) if (input[field] !== undefined) Object.assign(definition, { [field]: input[field] })
  requireIds(definition)
  return {
    name: input.name ?? before?.name ?? '',
    description: input.description ?? before?.description ?? '',
    definition,
  }
}

function requireIds({ source, actions = [], condition_task: task }: RuleDefinition): void {
  if (task !== undefined && !isId(task)) throw refusedField('/condition_task', 'must be a UUID in lower case')
  for (const field of ['channels', 'clients', 'groups'] as const)
    for (const [index, id] of (source[field] ?? []).entries())
      if (!isId(id)) throw refusedField(`/source/${field}/${index}`, 'must be a UUID in lower case')
  for (const [index, action] of actions.entries()) {
    if (action.type === 'publish' && !isId(action.channel))
      throw refusedField(`/actions/${index}/channel`, 'must be a UUID in lower case')
    if (action.type === 'start' && !isId(action.task))
      throw refusedField(`/actions/${index}/task`, 'must be a UUID in lower case')
  }
  if (actions.filter(({ type }) => type === 'alarm').length > 1)
    throw refusedField('/actions', 'must not have more than one alarm: a rule has one for each series')
}
