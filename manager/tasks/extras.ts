/**
 * Derived values of a task's fields: permissions on channels, the next tick of its schedule, sealed secrets
 * (task-manager.md section 1, Rights of a task).
 */
import { ServiceError } from '#core/errors/index.ts'
import type { UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { requireSchedule } from '#core/schedule.ts'
import { nextTick } from '#core/ticks.ts'
import type { TaskAccess, TaskCaller } from '../access/access.ts'
import { canonicalSubtopic, requireChannelId, triggerRule } from '../model/channel-fields.ts'
import type { TaskFields } from '../model/task-fields.ts'
import { hasNodesThatOfferAll } from '../store/tasks.ts'
import type { TaskExtras, TaskRecord } from '../store/tasks.ts'
import { REDACTED } from './schema.ts'

const PURPOSE = 'task secrets'
/** A node that was stopped counts as alive for this long. */
const UPGRADE_SECONDS = 30

/** Seals values by name, bound to their task. */
export function sealSecrets(keyring: Keyring, taskId: string, secrets: Readonly<Record<string, string>>): Buffer {
  return keyring.seal(PURPOSE, taskId, JSON.stringify(secrets))
}

export function openSecrets(keyring: Keyring, taskId: string, sealed: Uint8Array): Record<string, string> {
  return JSON.parse(keyring.open(PURPOSE, taskId, sealed)) as Record<string, string>
}

export type ExtrasDeps = { access: TaskAccess; keyring: Keyring; database: Pick<Database, 'db'>; now: () => Date }

type Asked = {
  caller: TaskCaller
  task: { id: string; domainId: string | null }
  fields: Partial<TaskFields>
  /** The given value; undefined: not given. */
  secrets: Readonly<Record<string, string>> | null | undefined
  /** The current values of the task; undefined for a new one. */
  before: Pick<TaskRecord, 'schedule' | 'timezone'> | undefined
  /** Its sealed secrets. */
  sealed: Buffer | null
}

/**
 * Throws `unauthenticated` if a field requires a user and there is none, `forbidden` without the permission on a channel,
 * `malformed` with the field.
 */
export async function extrasOf(
  { access, keyring, database, now }: ExtrasDeps,
  asked: Asked,
): Promise<Partial<TaskExtras>> {
  const { fields } = asked
  return {
    ...scheduleExtras(asked, now()),
    ...(fields.trigger === undefined ? {} : { triggerRule: await ruleOf(access, asked) }),
    ...(await checkTargets(access, asked)),
    ...(fields.answers === undefined || fields.answers === null ? {} : await checkAnswers({ access, database }, asked)),
    ...secretExtras(keyring, asked),
  }
}

function scheduleExtras({ fields, before }: Asked, now: Date): Pick<Partial<TaskExtras>, 'nextTickAt'> {
  if (fields.schedule === undefined && fields.timezone === undefined) return {}
  const schedule = fields.schedule === undefined ? (before?.schedule ?? null) : fields.schedule
  const timezone = fields.timezone ?? before?.timezone ?? 'UTC'
  if (schedule === null) {
    requireSchedule('0 0 * * *', timezone)
    return { nextTickAt: null }
  }
  requireSchedule(schedule, timezone)
  return { nextTickAt: nextTick(schedule, timezone, now) ?? null }
}

async function ruleOf(access: TaskAccess, asked: Asked): Promise<TaskExtras['triggerRule']> {
  const { trigger } = asked.fields
  if (trigger === undefined || trigger === null) return null
  const rule = triggerRule(trigger)
  const { user, domainId } = requireUser(asked, 'trigger')
  return { ...rule, channelKey: await access.requireChannel(user, 'subscribe', domainId, trigger.channel_id) }
}

async function checkTargets(access: TaskAccess, asked: Asked): Promise<Record<never, never>> {
  const { publish_result: publishResult, grants, http } = asked.fields
  if (publishResult !== undefined && publishResult !== null) {
    requireChannelId(publishResult.channel_id, '/publish_result/channel_id')
    canonicalSubtopic(publishResult.subtopic, '/publish_result/subtopic')
    const { user, domainId } = requireUser(asked, 'publish_result')
    await access.requireChannel(user, 'publish', domainId, publishResult.channel_id)
  }
  for (const [index, grant] of (grants ?? []).entries()) {
    requireChannelId(grant.channel_id, `/grants/${index}/channel_id`)
    canonicalSubtopic(grant.subtopic, `/grants/${index}/subtopic`)
    const { user, domainId } = requireUser(asked, 'grants')
    await access.requireChannel(user, grant.kind === 'publish' ? 'publish' : 'subscribe', domainId, grant.channel_id)
  }
  // Who may change the task may grant it: the addresses are public ones. The journal names the user.
  if (http !== undefined && http !== null) requireUser(asked, 'http')
  return {}
}

async function checkAnswers(
  { access, database }: Pick<ExtrasDeps, 'access' | 'database'>,
  asked: Asked,
): Promise<Record<never, never>> {
  const { answers } = asked.fields
  if (answers === undefined || answers === null) return {}
  const { user, domainId } = requireUser(asked, 'answers')
  await access.requireCommands(user, domainId)
  if (await hasNodesThatOfferAll(database.db))
    throw new ServiceError(
      'unavailable',
      'answers requires that all nodes have this version: one of an earlier version would offer the commands to the devices as well',
      { retryAfterSeconds: UPGRADE_SECONDS },
    )
  return {}
}

function secretExtras(keyring: Keyring, asked: Asked): Pick<Partial<TaskExtras>, 'secrets' | 'secretNames'> {
  const { secrets, sealed, task } = asked
  if (secrets === undefined) return {}
  const names = Object.keys(secrets ?? {})
  if (secrets === null || names.length === 0) return { secrets: null, secretNames: [] }
  requireUser(asked, 'secrets')
  const kept = sealed === null ? {} : openSecrets(keyring, task.id, sealed)
  const values = Object.fromEntries(
    names.map((name) => {
      const value = secrets[name] ?? ''
      return [name, value === REDACTED && kept[name] !== undefined ? kept[name] : value] as const
    }),
  )
  return { secrets: sealSecrets(keyring, task.id, values), secretNames: names.toSorted() }
}

/** Throws `unauthenticated` without a principal, `malformed` for a task of no domain. */
function requireUser({ caller, task }: Asked, field: string): { user: UserPrincipal; domainId: string } {
  if (caller === undefined)
    throw new ServiceError('unauthenticated', `${field} requires a token: a task acts as its creator`)
  if (task.domainId === null) {
    throw new ServiceError('malformed', `domain_id is required: ${field} belongs to a domain`, {
      details: [{ path: '/domain_id', message: 'is required' }],
    })
  }
  return { user: caller, domainId: task.domainId }
}
