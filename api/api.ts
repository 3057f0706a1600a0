/** Composition of the platform: starts every room of the API on one `Infrastructure`. */
import type { FastifyRequest } from 'fastify'
import type { Infrastructure } from '#infrastructure/index.ts'
import { readConfig } from '#core/config/index.ts'
import { describeDocument } from '#http/index.ts'
import type { HttpApp, Metrics, RoutePlugin, SharedPorts, TlsFiles } from '#http/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import { CoapServer } from './adapters/coap/index.ts'
import type { MqttConfig } from './adapters/mqtt/config.ts'
import {
  deletionRoutes,
  deviceCommandRoutes,
  deviceStateRoutes,
  httpMessageRoutes,
  icebergRoutes,
  usageRoutes,
} from './adapters/http/index.ts'
import { createMqttUpgrades, sessionRoutes, startMqtt } from './adapters/mqtt/index.ts'
import { webSocketRoutes } from './adapters/ws/index.ts'
import { ARCHIVE_SETTINGS } from './messages/archive/config.ts'
import type { ArchiveConfig } from './messages/archive/config.ts'
import { CONNECT_SETTINGS } from './connect/config.ts'
import type { ConnectConfig } from './connect/config.ts'
import { connectRoutes } from './connect/index.ts'
import type { Listeners } from './connect/index.ts'
import { startAutomation } from './automation/index.ts'
import { startConsumers } from './consumers/index.ts'
import type { ConsumerTimes } from './consumers/index.ts'
import { databaseHealthRoute } from './database-routes.ts'
import { newerUrl, translateOlderRequests } from './legacy-routes.ts'
import { createDevices } from './devices/index.ts'
import type { Devices } from './devices/index.ts'
import { API_DOCUMENT } from './document.ts'
import {
  journalOfDomain,
  startDomainPurge,
  startEvents,
  createTrialFilter,
  registerTrials,
  startIdentity,
  startJournalRetention,
} from './identity/index.ts'
import type { DomainPurge, Identity, IdentityConfig } from './identity/index.ts'
import {
  ArchiveService,
  MessageDeletion,
  SessionsService,
  UsageService,
  removalsOf,
  removeDeadNodes,
  archiveState,
  forgetArchiveRounds,
  s3TargetOf,
  startArchiver,
  startMessages,
  startSessionStore,
} from './messages/index.ts'
import type { Messages } from './messages/index.ts'
import { createFullDomains } from './queued-bytes.ts'
import { startDomainStreams, startViews } from './views/index.ts'
import { RULES_SETTINGS } from './rules/config.ts'
import type { RulesConfig } from './rules/config.ts'
import { startRules } from './rules/index.ts'
import type { RuleTimes } from './rules/index.ts'
import { PROVISIONING_SETTINGS, startProvisioning } from './provisioning/index.ts'
import type { NotificationTimes, Provisioning, ProvisioningConfig } from './provisioning/index.ts'

export type Api = {
  readonly identity: Identity
  readonly devices: Devices
  readonly messages: Messages
  readonly provisioning: Provisioning
  readonly domainPurge: DomainPurge
  readonly routes: RoutePlugin
  /**
   * Opens the ports of MQTT and CoAP. Called when everything behind them can answer, also the HTTP application: a device that cannot
   * connect uses another node at once, and one that connects too early waits for its answer.
   */
  listen(): Promise<DevicePorts>
  /** The `authenticate` hook of the HTTP server. */
  authenticate(request: FastifyRequest): Promise<void>
  /** The URL with the newer names of an older path. */
  newerUrl(url: string, authorization: string | undefined): string
}

/** Undefined: the protocol is disabled. */
export type DevicePorts = {
  readonly mqttPort: number | undefined
  readonly mqttsPort: number | undefined
  /** The port of UDP. */
  readonly coapPort: number | undefined
}

export type ApiOptions = {
  infrastructure: Infrastructure
  config: IdentityConfig
  /** Undefined selects every default. */
  provisioning?: ProvisioningConfig
  /** Undefined selects every default. */
  rules?: RulesConfig
  /** Undefined selects every default: no archive. */
  archive?: ArchiveConfig
  /** Listener of CoAP. Undefined disables CoAP. */
  coap?: { host: string; port: number; maxBodyBytes: number } | undefined
  /** Listener of MQTT. Undefined disables MQTT. `files` are the configured TLS files, if any. */
  mqtt?:
    | {
        config: MqttConfig
        host: string
        sharedPorts?: SharedPorts | undefined
        trustProxy?: readonly string[] | undefined
        maxBodyBytes: number
        files: TlsFiles | undefined
      }
    | undefined
  /** The addresses where devices and workers connect. Undefined: HTTP alone. */
  connect?: { settings: ConnectConfig; listeners: Listeners } | undefined
  /** Processes of the platform that share the cores of this machine. */
  processes?: number
  metrics?: Metrics
  /** Interval at which changes of other processes are read. Tests shorten it. */
  tailIntervalMs?: number
  /** Interval of heartbeats on an idle event stream. Tests shorten it. */
  eventHeartbeatMs?: number
  /** Delays before notifications are sent and retried. Tests shorten them. */
  notificationTimes?: NotificationTimes
  /** Intervals at which consumers that nobody reads are looked at. Tests shorten them. */
  consumerTimes?: ConsumerTimes
  /** Intervals of rules. Tests shorten them. */
  ruleTimes?: RuleTimes
}

export async function startApi(life: Lifecycle, options: ApiOptions): Promise<Api> {
  const { identity, events } = await startIdentityParts(life, options)
  const parts = await startDeviceParts(life, options, { identity, events })
  const mqttServer = options.mqtt === undefined ? undefined : await startMqttServer(life, options, options.mqtt, parts)
  const answers = await startAnswers(life, options, parts)
  const { devices, messages, provisioning } = parts
  return {
    identity,
    devices,
    messages,
    provisioning,
    domainPurge: answers.domainPurge,
    authenticate: (request) => identity.authenticate(request),
    newerUrl,
    listen: async () => ({
      ...(await listenForMqtt(life, mqttServer)),
      coapPort: await listenForCoap(life, options, parts),
    }),
    async routes(app) {
      describeDocument(app, API_DOCUMENT)
      translateOlderRequests(app)
      await entityRoutes(app, options, parts)
      await messageRoutes(app, life, options, { parts, answers, mqttServer })
    },
  }
}

type IdentityParts = Awaited<ReturnType<typeof startIdentityParts>>
type Parts = Awaited<ReturnType<typeof startDeviceParts>>
type Answers = Awaited<ReturnType<typeof startAnswers>>
type MqttServer = Awaited<ReturnType<typeof startMqtt>>

/** Accounts, roles and the journal, and the streams of its events. */
async function startIdentityParts(
  life: Lifecycle,
  { infrastructure, config, tailIntervalMs, eventHeartbeatMs }: ApiOptions,
) {
  const { database, bus, limits, keyring, logger, dataDir, streams } = infrastructure
  const identity = await life.start('identity', async () => {
    const value = await startIdentity({
      config,
      database,
      bus,
      limits,
      keyring,
      logger,
      dataDir,
      ...(tailIntervalMs === undefined ? {} : { tailIntervalMs }),
    })
    return { value, stop: () => value.stop() }
  })
  infrastructure.readiness.add(...identity.journal.checks)
  await life.start('journal retention', () => {
    const value = startJournalRetention({ database, logger, days: config.journalRetentionDays })
    return Promise.resolve({ value, stop: () => value.stop() })
  })
  const events = await life.start('events', async () => {
    const value = await startEvents({
      database,
      journal: identity.journal,
      access: identity.access,
      authenticate: (token, origin) => identity.tokens.authenticate(token, origin),
      streams,
      logger,
      redisUrl: infrastructure.config.redisUrl?.reveal(),
      streamLength: config.eventStreamLength,
      signal: life.signal,
      ...(eventHeartbeatMs === undefined ? {} : { heartbeatMs: eventHeartbeatMs }),
    })
    return { value, stop: () => value.stop() }
  })
  return { identity, events }
}

/** Devices, their messages, and what messages cause. */
async function startDeviceParts(life: Lifecycle, options: ApiOptions, { identity, events }: IdentityParts) {
  const { infrastructure, config, processes, notificationTimes, consumerTimes } = options
  const { database, history, bus, limits, keyring, logger, hasRoom, canCommit, node } = infrastructure
  const devices = await life.start('devices', () => {
    const value = createDevices({ database, bus, keyring, identity, limits, logger })
    return Promise.resolve({ value, stop: () => value.stop() })
  })
  node.removeDeadWith(() => removeDeadNodes(identity.journal))
  const messages = await life.start('messages', async () => {
    const { signal } = life
    const { quotas } = identity
    const shared = { database, bus, node, logger, limits, quotas }
    const value = await startMessages({ ...shared, history, hasRoom, canCommit, processes, signal })
    return { value, stop: () => value.close() }
  })
  const archive = options.archive ?? readConfig(ARCHIVE_SETTINGS, {})
  const { url, afterMs } = archive
  const s3 = s3TargetOf(archive)
  await life.start('archive', async () => {
    const value =
      url === undefined
        ? forgetArchiveRounds({ database, logger })
        : await startArchiver({ database, logger, url, s3, afterMs })
    return { value, stop: () => value.stop() }
  })
  const fullDomains = createFullDomains(database, identity.quotas, logger)
  const provisioning = await life.start('provisioning', async () => {
    const value = await startProvisioning({
      config: { ...(options.provisioning ?? readConfig(PROVISIONING_SETTINGS, {})), publicUrl: config.publicUrl },
      database,
      keyring,
      limits,
      logger,
      identity,
      devices,
      fullDomains,
      notificationTimes,
    })
    return { value, stop: () => value.stop() }
  })
  const { gate } = devices
  await life.start('automation', async () => {
    const value = await startAutomation({ database, bus, gate, messages, fullDomains, logger })
    return { value, stop: () => value.stop() }
  })
  const consumers = await life.start('consumers', () => {
    const { signal } = life
    const shared = { infrastructure, identity, gate, messages, fullDomains, signal }
    const value = startConsumers({ ...shared, times: consumerTimes })
    return Promise.resolve({ value, stop: () => value.stop() })
  })
  const rules = await life.start('rules', () => {
    const value = startRules({
      config: options.rules ?? readConfig(RULES_SETTINGS, {}),
      infrastructure,
      identity,
      gate,
      messages,
      contacts: provisioning.ruleContacts,
      times: options.ruleTimes,
    })
    return Promise.resolve({ value, stop: () => value.stop() })
  })
  return { identity, events, devices, messages, provisioning, consumers, rules }
}

async function startMqttServer(
  life: Lifecycle,
  { infrastructure, metrics }: ApiOptions,
  mqtt: NonNullable<ApiOptions['mqtt']>,
  { identity, devices, messages, provisioning }: Parts,
): Promise<MqttServer> {
  const { database, logger, streams, node } = infrastructure
  const { journal, quotas } = identity
  const { ensureTls, clientOf } = provisioning.certificates
  const { mqttsPort, mqttSessionsPerClient: maxSessionsPerClient } = mqtt.config
  return await life.start('MQTT', async () => {
    const value = await startMqtt({
      ...mqtt,
      tls: mqttsPort === 0 ? undefined : ensureTls(mqtt.files),
      clientOf,
      gate: devices.gate,
      topics: devices.topics,
      messages,
      journal,
      startStore: (options) =>
        startSessionStore({ ...options, database, node, journal, logger, maxSessionsPerClient, quotas }),
      budget: streams.budget,
      metrics,
      logger,
    })
    return { value, stop: () => value.stop() }
  })
}

/** Starts the parts that read and remove data of several other parts. */
async function startAnswers(
  life: Lifecycle,
  { infrastructure }: ApiOptions,
  { identity, events, devices, messages, consumers }: Parts,
) {
  const { database, logger } = infrastructure
  const { access, journal, tokens, pages, groups, quotas } = identity
  const streamed = await life.start('streams of domains', () => {
    const value = startDomainStreams({
      database,
      access,
      tokens,
      pages,
      isFresh: journal.isFresh,
      events: events.service,
      messages,
      gate: devices.gate,
      consumers: consumers.delivery,
      logger,
    })
    return Promise.resolve({ value, stop: () => value.stop() })
  })
  const views = await life.start('views', () => {
    const value = startViews({ database, access, devices, groups, quotas, logger })
    return Promise.resolve({ value, stop: () => value.stop() })
  })
  const domainPurge = await life.start('domain purge', () => {
    const belongings = [
      (domainKey: number) => removalsOf(database, domainKey),
      // The journal is purged last: it is the only record of entities that were deleted earlier.
      (domainKey: number) => Promise.resolve(journalOfDomain(database, domainKey)),
    ]
    const value = startDomainPurge({ database, journal, logger, belongings })
    return Promise.resolve({ value, stop: () => value.stop() })
  })
  return { streamed, views, domainPurge }
}

async function listenForMqtt(life: Lifecycle, server: MqttServer | undefined) {
  if (server === undefined) return { mqttPort: undefined, mqttsPort: undefined }
  await life.start('MQTT listeners', async () => {
    await server.listen()
    return { value: undefined, stop: () => server.close() }
  })
  return { mqttPort: server.port, mqttsPort: server.tlsPort }
}

async function listenForCoap(
  life: Lifecycle,
  { coap, infrastructure: { logger }, metrics }: ApiOptions,
  { devices: { gate, topics }, messages }: Parts,
): Promise<number | undefined> {
  if (coap === undefined) return undefined
  const server = await life.start('CoAP', async () => {
    const value = await CoapServer.start({ ...coap, gate, topics, messages, metrics, logger })
    return { value, stop: () => value.stop() }
  })
  return server.port
}

async function entityRoutes(
  app: HttpApp,
  { infrastructure, config, connect }: ApiOptions,
  { identity, events, devices }: Parts,
): Promise<void> {
  const { database, diagnose } = infrastructure
  registerTrials(app, createTrialFilter({ database, access: identity.access }))
  await identity.routes(app)
  await connectRoutes({
    ...(connect?.settings ?? readConfig(CONNECT_SETTINGS, {})),
    listeners: connect?.listeners,
    publicUrl: config.publicUrl,
  })(app)
  await databaseHealthRoute({ identity, diagnose, archive: () => archiveState(database.db) })(app)
  await events.routes(app)
  await devices.routes(app)
}

type Served = { parts: Parts; answers: Answers; mqttServer: MqttServer | undefined }

async function messageRoutes(
  app: HttpApp,
  life: Lifecycle,
  { infrastructure, archive }: ApiOptions,
  {
    parts: { identity, devices, messages, provisioning, consumers, rules },
    answers: { streamed, views },
    mqttServer,
  }: Served,
): Promise<void> {
  const { database, streams } = infrastructure
  const { access, journal, tokens, quotas } = identity
  const { clientOf } = provisioning.certificates
  const adapter = { messages, gate: devices.gate, tokens, clientOf, streams }
  await httpMessageRoutes(adapter)(app)
  await deviceStateRoutes(devices.reports, messages, adapter)(app)
  await deviceCommandRoutes(devices.commands, messages, adapter)(app)
  await deletionRoutes(new MessageDeletion({ database, access, journal }), devices.gate)(app)
  await usageRoutes(new UsageService({ database, access, quotas }))(app)
  const s3 = archive === undefined ? undefined : s3TargetOf(archive)
  await icebergRoutes(new ArchiveService({ database, access, isEnabled: archive?.url !== undefined, s3 }))(app)
  await sessionRoutes(new SessionsService({ database, access, journal }))(app)
  await provisioning.routes(app)
  await consumers.routes(app)
  await rules.routes(app)
  await views.routes(app)
  await streamed.routes(app)
  const mqttUpgrades =
    mqttServer === undefined
      ? undefined
      : createMqttUpgrades((stream, address) => mqttServer.accept(stream, address), {
          addressOf: app.callerAddress,
          maxFrameBytes: app.initialConfig.bodyLimit,
        })
  await webSocketRoutes({
    ...adapter,
    signal: life.signal,
    endpoints: [streamed.endpoint],
    takenByOthers: mqttUpgrades?.take,
  })(app)
}
