/** A task manager in the process of a test's platform, as `npm start` composes them. */
import { createChannelReader } from '#api/index.ts'
import type { Api } from '#api/index.ts'
import { readConfig } from '#core/config/index.ts'
import type { Infrastructure } from '#infrastructure/index.ts'
import type { Lifecycle } from '#core/program/index.ts'
import { MANAGER_SETTINGS, createTaskAccess, startManager } from '#manager/index.ts'
import type { Manager, ManagerTiming } from '#manager/index.ts'

export type TaskManagerOptions = {
  /** Whether callers need a token. */
  mode?: 'on' | 'off'
  environment?: Record<string, string>
  timing?: ManagerTiming
}

/** For `alsoServes` of a test's platform, which serves the routes of the manager. */
export async function startTaskManager(
  life: Lifecycle,
  api: Api,
  { database, bus, keyring, streams, dataDir, logger }: Infrastructure,
  { mode = 'on', environment, timing }: TaskManagerOptions = {},
): Promise<Manager> {
  const access = createTaskAccess({
    database,
    access: api.identity.access,
    quotas: api.identity.quotas,
    authenticate: (request) => api.authenticate(request),
    mode,
    corsOrigins: [],
  })
  const config = readConfig(MANAGER_SETTINGS, { SKEIN_MANAGER_GRPC_PORT: '0', ...environment })
  const readChannel = createChannelReader(database)
  return await life.start('task manager', async () => {
    const value = await startManager({
      config,
      database,
      bus,
      keyring,
      access,
      streams,
      dataDir,
      logger,
      readChannel,
      ...(timing === undefined ? {} : { timing }),
    })
    return { value, stop: () => value.stop() }
  })
}
