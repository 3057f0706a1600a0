/** What the banner of `npm start` tells of the parts that were started. */
import type { ConfigsOf } from '#core/config/index.ts'
import type { Infrastructure } from '#infrastructure/index.ts'
import { reachableFrom } from '#proto/index.ts'
import type { API_SETTINGS } from './api-settings.ts'
import { isolationNotices } from './banner.ts'
import type { BannerFacts } from './banner.ts'
import type { Everything } from './everything.ts'
import { HERE } from './places.ts'

const MANAGER_ACCESS = {
  auto: 'requests from this machine need no token for tasks of no domain (SKEIN_MANAGER_AUTH=auto)',
  off: 'requires no token (SKEIN_MANAGER_AUTH=off)',
  on: 'requires a token',
} as const

type Started = {
  everything: Everything
  infrastructure: Infrastructure
  /** The isolation of the guests of the worker. */
  isolation: string | undefined
  seconds: number
  /** The number of processes of the platform. */
  processes: number
}

export function bannerOf(
  config: ConfigsOf<typeof API_SETTINGS>,
  { everything, infrastructure, isolation, seconds, processes }: Started,
): BannerFacts {
  const { host } = config.http
  const { scheme, manager, mqttPort, mqttsPort, coapPort } = everything
  const at = (protocol: string, port: number | undefined) =>
    port === undefined ? [] : [`${protocol}://${reachableFrom(`${host}:${port}`, HERE)}`]
  const mqttAddresses = [...at('mqtt', mqttPort), ...at('mqtts', mqttsPort)]
  return {
    version: infrastructure.build.version,
    seconds,
    base: at(scheme, everything.basePort).join(''),
    manager: at(scheme, everything.managerHttpPort).join(''),
    processes,
    mqtt: config.connect.mqttPublicUrl ?? (mqttAddresses.join('  ') || undefined),
    coap: config.connect.coapPublicUrl ?? at('coap', coapPort)[0],
    managerAccess: MANAGER_ACCESS[everything.managerAuth],
    grpcAddress: config.connect.grpcPublicAddress ?? manager.grpcAddress,
    tokenFile: everything.tokenFile,
    proxyAddress: everything.proxyAddress,
    publicUrl: config.identity.publicUrl,
    databaseNote: infrastructure.databaseNote,
    takenPorts: everything.takenPorts,
    admin: everything.firstAdmin,
    notices: [...infrastructure.notices, ...isolationNotices(isolation)],
  }
}
