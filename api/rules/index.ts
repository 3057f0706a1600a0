/** Rules over messages, silence and the state of clients, and the alarms that they raise. */
import type { MessageGate } from '#api/devices/index.ts'
import type { Identity } from '#api/identity/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import type { Infrastructure } from '#infrastructure/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { countOpenAlarms, removeOldAlarms } from './alarms/repository.ts'
import { alarmRoutes } from './alarms/routes.ts'
import { AlarmsService } from './alarms/service.ts'
import type { RulesConfig } from './config.ts'
import type { Contacts } from './contacts.ts'
import { Evaluator } from './evaluation/evaluator.ts'
import { forgetStates, revisitEscalations } from './evaluation/repository.ts'
import { removeStrayChanges } from './evaluation/state/repository.ts'
import { countWindows } from './maintenance/repository.ts'
import { windowRoutes } from './maintenance/routes.ts'
import { WindowsService } from './maintenance/service.ts'
import { hintRulePublications, startRulePublications } from './publications/publications.ts'
import { countRules, lockDomain, noteChange } from './repository.ts'
import { ruleRoutes } from './routes.ts'
import { RulesService } from './service.ts'
import { Trials } from './trial.ts'

export { RULE_METRICS, ruleGauges } from './metrics.ts'

export type RuleTimes = { intervalMs?: number }

export type StartedRules = { readonly routes: RoutePlugin; stop(): Promise<void> }

const PUBLICATION_INTERVAL_MS = 100
const RETENTION_INTERVAL_MS = 3_600_000
/** The interval between two looks for changes of states that nobody evaluates. */
const STRAY_INTERVAL_MS = 10_000
const MAX_REMOVED = 1_000

type RulesGiven = {
  config: RulesConfig
  infrastructure: Pick<Infrastructure, 'database' | 'bus' | 'logger'>
  identity: Pick<Identity, 'access' | 'journal' | 'quotas'>
  gate: Pick<MessageGate, 'authorize'>
  messages: Pick<Messages, 'onCommitted' | 'publish' | 'rates'>
  contacts: Contacts
  /** Tests shorten them. */
  times?: RuleTimes | undefined
}

export function startRules({
  config,
  infrastructure: { database, bus, logger },
  identity: { access, journal, quotas },
  gate,
  messages,
  contacts,
  times = {},
}: RulesGiven): StartedRules {
  const evaluator = new Evaluator({
    database,
    bus,
    journal,
    quotas,
    access,
    gate,
    logger,
    onCommitted: (listener) => messages.onCommitted(listener),
    onPublished: () => hintRulePublications(bus),
    contacts,
    onNotified: () => contacts.wake(),
    ...times,
  })
  const publications = startRulePublications({
    database,
    bus,
    gate,
    messages,
    logger,
    intervalMs: PUBLICATION_INTERVAL_MS,
  })
  const retention = startRemoval(logger, 'old alarms', RETENTION_INTERVAL_MS, (limit) =>
    removeOldAlarms(database.db, config.alarmRetentionDays, limit),
  )
  const strays = startRemoval(logger, 'changes of states that no rule evaluates', STRAY_INTERVAL_MS, (limit) =>
    removeStrayChanges(database.db, limit),
  )
  const onChanged = (domainKey: number) => evaluator.changed(domainKey)
  const rules = new RulesService({ database, journal, access, gate, quotas, contacts, onChanged })
  const trials = new Trials({ database, access, gate, contacts })
  const told = { lockRules: lockDomain, forget: forgetStates, revisit: revisitEscalations, onStatesChanged: onChanged }
  const alarms = new AlarmsService({ database, journal, access, ...told })
  const windows = new WindowsService({
    database,
    journal,
    access,
    quotas,
    lockRules: lockDomain,
    noteChange,
    onChanged,
  })
  quotas.measure('maintenance_windows', (domainKey) => countWindows(database.db, domainKey))
  quotas.measure('rules', (domainKey) => countRules(database.db, domainKey))
  quotas.measure('open_alarms', (domainKey) => countOpenAlarms(database.db, domainKey))
  return {
    routes: async (app) => {
      await ruleRoutes(rules, trials)(app)
      await alarmRoutes(alarms)(app)
      await windowRoutes(windows)(app)
    },
    async stop() {
      await Promise.all([evaluator.stop(), publications.stop(), retention.stop(), strays.stop()])
    },
  }
}

/** Removes what nobody needs, some at a time: `remove` returns how many. */
function startRemoval(
  logger: Infrastructure['logger'],
  what: string,
  intervalMs: number,
  remove: (limit: number) => Promise<number>,
): PeriodicRounds {
  return startPeriodicRounds({
    firstPauseMs: intervalMs,
    pauseMs: intervalMs,
    async round(signal) {
      while (!signal.aborted) if ((await remove(MAX_REMOVED)) < MAX_REMOVED) break
    },
    onFailure: (error) => logger.warn({ err: error }, `failed to remove ${what}; retrying`),
  })
}
