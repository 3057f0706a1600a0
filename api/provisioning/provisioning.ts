/** Composition of the room: how a device with nothing but an external id and key becomes a client. */
import type { Identity } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startCertificates } from './certs/index.ts'
import type { Certificates } from './certs/index.ts'
import type { ProvisioningConfig } from './config.ts'

export type Provisioning = {
  readonly certificates: Certificates
  readonly routes: RoutePlugin
  stop(): Promise<void>
}

export async function startProvisioning(deps: {
  config: ProvisioningConfig & { publicUrl: string }
  database: Database
  keyring: Keyring
  logger: Logger
  identity: Identity
}): Promise<Provisioning> {
  const { config, database, keyring, logger, identity } = deps
  const { access, journal } = identity
  const certificates = await startCertificates({ config, database, journal, access, keyring, logger })
  return {
    certificates,
    routes: async (app) => {
      await certificates.routes(app)
    },
    async stop() {
      await certificates.stop()
    },
  }
}
