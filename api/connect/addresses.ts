/**
 * The addresses where devices and workers connect: those that the operator set, or the host of the platform and the ports of its listeners.
 */
import { isLoopbackHost } from '#core/loopback.ts'
import type { Addresses } from './schema.ts'
import type { ConnectConfig } from './config.ts'

/** Ports of this installation; 0 is a listener that is off, or whose port is not known here. */
export type Listeners = {
  readonly mqttPort: number
  readonly mqttsPort: number
  readonly coapPort: number
  readonly grpcPort: number
  /** Names of the certificate that the own authority issued for TLS. Undefined: the operator configured a certificate. */
  readonly ownNames: readonly string[] | undefined
}

export type Reachable = ConnectConfig & { readonly publicUrl: string; readonly listeners: Listeners | undefined }

const ADDRESS = /^https?:\/\/(?:[\w.-]+|\[[\da-f:.]+\])(?::\d+)?$/i

/**
 * `reachedAt`: the address with which the caller asked, such as `http://192.168.0.7:8080`. It replaces a SKEIN_PUBLIC_URL that
 * leads only to this machine.
 */
export function addressesOf({ publicUrl, listeners, ...set }: Reachable, reachedAt: string): Addresses {
  const isHere = isLoopbackHost(bare(new URL(publicUrl).hostname))
  // A header of the request: what is no address is ignored.
  const base = isHere && ADDRESS.test(reachedAt) && URL.canParse(reachedAt) ? reachedAt : publicUrl
  const { hostname } = new URL(base)
  if (listeners === undefined) return { http: { url: base } }
  const own = (scheme: string, port: number) => (port === 0 ? undefined : { url: `${scheme}://${hostname}:${port}` })
  const mqtt = set.mqttPublicUrl
  const isTls = mqtt?.startsWith('mqtts:') === true
  const mqtts = mqtt === undefined ? own('mqtts', listeners.mqttsPort) : isTls ? { url: mqtt } : undefined
  return {
    http: { url: base },
    ...given('mqtt', mqtt === undefined ? own('mqtt', listeners.mqttPort) : isTls ? undefined : { url: mqtt }),
    ...given('mqtts', mqtts && { ...mqtts, ...authorityOf(mqtts.url, listeners, publicUrl, base) }),
    mqtt_websocket: { url: `${base.replace(/^http/, 'ws')}/mqtt` },
    ...given('coap', set.coapPublicUrl === undefined ? own('coap', listeners.coapPort) : { url: set.coapPublicUrl }),
    ...given('workers', workersOf(set.grpcPublicAddress, hostname, listeners.grpcPort)),
  }
}

/**
 * Devices must be given the own authority where its certificate is the one they see: a balancer that passes TLS on has a name
 * of this certificate. One that ends TLS itself needs no listener of TLS behind it.
 */
function authorityOf(url: string, { ownNames, mqttsPort }: Listeners, publicUrl: string, base: string) {
  if (ownNames === undefined || mqttsPort === 0) return {}
  const host = bare(new URL(url).hostname)
  const names = [...ownNames, ...[publicUrl, base].map((one) => bare(new URL(one).hostname))]
  return names.includes(host) ? { ca_url: `${base}/certs/download-ca?format=pem` } : {}
}

function workersOf(address: string | undefined, hostname: string, port: number): { address: string } | undefined {
  if (address !== undefined) return { address }
  return port === 0 ? undefined : { address: `${hostname}:${port}` }
}

const bare = (hostname: string) => hostname.replaceAll(/[[\]]/g, '')

const given = <K extends string, T>(name: K, value: T | undefined) =>
  (value === undefined ? {} : { [name]: value }) as { [key in K]?: T }
