/** Composition of the room: provisioning of devices, and notifications about their messages. */
import type { Devices } from '#api/devices/index.ts'
import type { FullDomains, Identity } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { SharedLimits } from '#core/limits/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { isLoopbackHost } from '#core/loopback.ts'
import {
  BootstrapService,
  bootstrapCipher,
  bootstrapRoutes,
  FactoryKeys,
  createCallerThrottle,
  createKeyThrottle,
  deviceBootstrapRoutes,
  enrolmentRoutes,
} from './bootstrap/index.ts'
import { bulkRoutes, BulkService } from './bulk/index.ts'
import { startCertificates } from './certs/index.ts'
import type { Certificates } from './certs/index.ts'
import type { ProvisioningConfig } from './config.ts'
import { startNotifications } from './notifications/index.ts'
import type { RuleContacts } from './notifications/index.ts'
import type { NotificationTimes } from './notifications/index.ts'
import { ProfilesService, profileRoutes } from './profiles/index.ts'
import {
  ProvisionService,
  createAnonymousThrottle,
  createServiceLogin,
  loadLayout,
  provisionRoutes,
} from './provision/index.ts'

export type Provisioning = {
  readonly certificates: Certificates
  /**
   * Returns the warning for a start on this address: requests without Authorization from other machines (decision 56).
   */
  warningFor(host: string): string | undefined
  /** Delivers the mails and webhook requests of rules. */
  readonly ruleContacts: RuleContacts
  readonly routes: RoutePlugin
  stop(): Promise<void>
}

export type ProvisioningDeps = {
  config: ProvisioningConfig & { publicUrl: string }
  database: Database
  keyring: Keyring
  limits: SharedLimits | undefined
  logger: Logger
  identity: Identity
  devices: Devices
  /** Domains whose quota `queued_bytes` is used up. */
  fullDomains: FullDomains
  /** Tests shorten them. */
  notificationTimes?: NotificationTimes | undefined
}

/** Throws `malformed` for invalid settings, an invalid layout and invalid files. */
export async function startProvisioning(deps: ProvisioningDeps): Promise<Provisioning> {
  const { config, database, keyring, limits, logger, identity, devices } = deps
  const { access, journal, tokens } = identity
  const cipher = bootstrapCipher(config.bootstrapEncryptKey)
  const layout = await loadLayout(config)
  const certificates = await startCertificates({ config, database, journal, access, keyring, logger })
  const [keyThrottle, callerThrottle] = [createKeyThrottle(limits), createCallerThrottle(limits)]
  const bootstrap = new BootstrapService({
    database,
    journal,
    access,
    keyring,
    devices,
    factoryKeys: new FactoryKeys({ database, journal, throttle: keyThrottle, callers: callerThrottle }),
    allowsWeakKeys: config.bootstrapWeakKeys,
  })
  const provision = new ProvisionService({ database, journal, access, devices, bootstrap, certificates, layout })
  const login = createServiceLogin(tokens, layout.credentials)
  const throttle = createAnonymousThrottle(limits)
  const notifications = await startNotifications({
    config,
    database,
    keyring,
    limits,
    logger,
    identity,
    gate: devices.gate,
    fullDomains: deps.fullDomains,
    times: deps.notificationTimes,
  })
  const onSecureOff = () => logger.info('rejected a secure bootstrap: SKEIN_BOOTSTRAP_ENCRYPT_KEY is not set')
  return {
    certificates,
    ruleContacts: notifications.ruleContacts,
    warningFor: (host) =>
      login.isOn && !isLoopbackHost(host)
        ? 'callers without Authorization can create clients and channels with /mapping as the user of SKEIN_PROVISION_USER'
        : undefined,
    routes: async (app) => {
      await certificates.routes(app)
      await bootstrapRoutes(bootstrap)(app)
      await profileRoutes(new ProfilesService({ database, journal, access }))(app)
      await enrolmentRoutes(bootstrap)(app)
      await deviceBootstrapRoutes(bootstrap, cipher, onSecureOff)(app)
      await provisionRoutes({ provision, tokens, login, throttle })(app)
      await bulkRoutes(new BulkService({ database, access, devices }), devices.bulk)(app)
      await notifications.routes(app)
    },
    async stop() {
      keyThrottle.stop()
      callerThrottle.stop()
      await notifications.stop()
      await certificates.stop()
    },
  }
}
