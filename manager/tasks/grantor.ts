/**
 * Decides whose rights a task uses (contract decision 88): its channel fields act with those of its grantor. A change of what runs with
 * them by another user requires the same rights, and makes that user the grantor.
 */
import { isDeepStrictEqual } from 'node:util'
import type { UserPrincipal } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { whyUnusable } from '#queues/index.ts'
import type { ChannelAction, TaskAccess, TaskCaller } from '../access/access.ts'
import type { TaskFields } from '../model/task-fields.ts'
import type { TaskRecord } from '../store/tasks.ts'
import { REDACTED } from './schema.ts'

type ChannelFields = Pick<TaskFields, 'trigger' | 'publish_result' | 'grants' | 'answers'>
type Need = { action: ChannelAction; channelId: string } | { action: 'answer commands'; channelId: undefined }

export const CHANNEL_FIELDS = ['trigger', 'publish_result', 'grants', 'answers'] as const
/** With another grant for HTTP, the same code could send what it knows elsewhere. */
const CODE = ['image_url', 'function', 'http'] as const
/** The code, and the other fields by which another user could change what the task does. */
const WORK = [...CODE, 'cli_args', 'env', 'inputs'] as const

/** What the channel fields of a task and the commands that it answers need of its grantor; each channel once per action. */
export function needsOf({ trigger, publish_result: target, grants, answers }: ChannelFields): Need[] {
  const needs: Need[] = [
    ...(trigger === null ? [] : [{ action: 'subscribe' as const, channelId: trigger.channel_id }]),
    ...(target === null ? [] : [{ action: 'publish' as const, channelId: target.channel_id }]),
    ...grants.map(({ kind, channel_id: channelId }) => ({
      action: kind === 'publish' ? ('publish' as const) : ('subscribe' as const),
      channelId,
    })),
    ...(answers === null ? [] : [{ action: 'answer commands' as const, channelId: undefined }]),
  ]
  const byName = new Map(needs.map((need) => [`${need.action} ${need.channelId}`, need]))
  return [...byName.values()]
}

export type RightsDeps = { access: Pick<TaskAccess, 'requireChannel' | 'requireCommands'>; db: Queryable }

/** Throws `forbidden` with the first right that the user lacks. Nobody has a right on a deleted channel, and none is needed. */
export async function requireRights(
  { access, db }: RightsDeps,
  user: UserPrincipal,
  domainId: string,
  needs: readonly Need[],
): Promise<void> {
  for (const { action, channelId } of needs) {
    if (channelId === undefined) {
      await access.requireCommands(user, domainId)
      continue
    }
    try {
      await access.requireChannel(user, action, domainId, channelId)
    } catch (error) {
      if (kindOf(error) !== 'forbidden' || !(await isGone(db, domainId, channelId))) throw error
    }
  }
}

async function isGone(db: Queryable, domainId: string, channelId: string): Promise<boolean> {
  return (await whyUnusable(db, domainId, channelId))?.endsWith('deleted') === true
}

/** The fields among these that a change sets to another value. */
function changed<Column extends keyof TaskFields>(
  before: TaskFields,
  fields: Partial<TaskFields>,
  columns: readonly Column[],
): Column[] {
  return columns.filter((column) => fields[column] !== undefined && !isDeepStrictEqual(fields[column], before[column]))
}

/** Whether the values differ from the stored secrets; a value that is shown redacted stays as it is. */
export function changesSecrets(
  names: readonly string[],
  given: Readonly<Record<string, string>> | null | undefined,
): boolean {
  if (given === undefined) return false
  const entries = Object.entries(given ?? {})
  return entries.length !== names.length || entries.some(([name, value]) => !names.includes(name) || value !== REDACTED)
}

export type Change = {
  fields: Partial<TaskFields>
  secrets: Readonly<Record<string, string>> | null | undefined
  /** A module is uploaded. */
  hasFile: boolean
}

/** The given fields without channel fields that stay as they are: those grant nothing. */
export function withoutUnchanged(before: TaskFields, fields: Partial<TaskFields>): Partial<TaskFields> {
  const differing = new Set<string>(changed(before, fields, CHANNEL_FIELDS))
  const isKept = ([column]: [string, unknown]) =>
    !(CHANNEL_FIELDS as readonly string[]).includes(column) || differing.has(column)
  return Object.fromEntries(Object.entries(fields).filter(isKept)) as Partial<TaskFields>
}

/**
 * The grantor after a change, undefined: the same as before. Throws `forbidden` without `task_secrets`, for secrets and for the code
 * of a task that has some, and for a change of what runs with rights that the caller lacks; `unauthenticated` without a user.
 */
export async function grantorAfter(
  deps: RightsDeps & { access: Pick<TaskAccess, 'can'> },
  caller: TaskCaller,
  before: TaskRecord,
  { fields, secrets, hasFile }: Change,
): Promise<number | undefined> {
  const grantsMore = (column: keyof TaskFields) => column !== 'http' || !isNothing(fields.http)
  const setsSecrets = changesSecrets(before.secret_names, secrets)
  const code = changed(before, fields, CODE).filter(grantsMore)
  const changesCode = hasFile || code.length > 0
  if (setsSecrets) await requireSecretsRight(deps.access, caller, before.domain_id, 'to set secrets')
  else if (changesCode && before.secret_names.length > 0)
    await requireSecretsRight(
      deps.access,
      caller,
      before.domain_id,
      'to change the code or the HTTP grant of a task with secrets',
    )

  const granted = changed(before, fields, CHANNEL_FIELDS).filter((column) => !isNothing(fields[column]))
  const needs = needsOf({ ...before, ...fields })
  const isTheirs = caller !== undefined && caller.key === before.user_key
  const changesWork = changesCode || setsSecrets || changed(before, fields, WORK).filter(grantsMore).length > 0
  // A task of no domain has no channels: the fields refuse them.
  if (before.domain_id === null || needs.length === 0 || isTheirs) return undefined
  if (granted.length === 0 && !changesWork) return undefined
  if (caller === undefined)
    throw new ServiceError(
      'unauthenticated',
      'the task uses the rights of a user: a change of what it does needs a token',
    )
  await requireRights(deps, caller, before.domain_id, needs)
  return caller.key
}

const isNothing = (value: unknown) =>
  value === null || value === undefined || (Array.isArray(value) && value.length === 0)

/** Throws `forbidden`. */
export async function requireSecretsRight(
  access: Pick<TaskAccess, 'can'>,
  caller: TaskCaller,
  domainId: string | null,
  what: string,
): Promise<void> {
  if (await access.can(caller, 'task_secrets', domainId)) return
  throw new ServiceError('forbidden', `failed to perform authorization: needs task_secrets in the domain ${what}`)
}
