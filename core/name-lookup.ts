/**
 * Looks up the names of servers that a program connects to again and again. A lookup of the system blocks one of the few background threads of
 * the process until the name server answers, which takes 5 s and more when one packet is lost: engines of containers drop queries while they
 * start another container. So there is one lookup of a name at a time, and a name that was found before is not waited for.
 */
import { lookup } from 'node:dns'
import type { LookupAddress, LookupAllOptions } from 'node:dns'
import type { LookupFunction } from 'node:net'
import { callbackify } from 'node:util'
import { SingleFlight } from './single-flight.ts'
import { sleep } from './time.ts'

/** How long a lookup may take before the earlier answer is used. */
const MAX_WAIT_MS = 500

type Find = (name: string, options: LookupAllOptions) => Promise<LookupAddress[]>

const findBySystem: Find = (name, options) =>
  new Promise((resolve, reject) => {
    lookup(name, options, (error, addresses) => (error === null ? resolve(addresses) : reject(error)))
  })

/**
 * For `lookup` of a connection. An answer of the name server, also that the name does not exist, always counts; its absence does not, if the name
 * was found before: neither silence nor EAI_AGAIN. It keeps what it found of each name, so that it is for names from settings.
 */
export function createNameLookup(find: Find = findBySystem, maxWaitMs = MAX_WAIT_MS): LookupFunction {
  const known = new Map<string, LookupAddress[]>()
  const flights = new SingleFlight<LookupAddress[]>()

  async function addressesOf(name: string, options: LookupAllOptions): Promise<LookupAddress[]> {
    const key = JSON.stringify([name, options.family ?? 0, options.hints ?? 0])
    const found = flights.run(key, async () => {
      try {
        const addresses = await find(name, options)
        known.set(key, addresses)
        return addresses
      } catch (error) {
        const earlier = known.get(key)
        if (earlier !== undefined && (error as NodeJS.ErrnoException).code === 'EAI_AGAIN') return earlier
        known.delete(key)
        throw error
      }
    })
    const earlier = known.get(key)
    if (earlier === undefined) return await found
    const ended = new AbortController()
    try {
      return await Promise.race([found, sleep(maxWaitMs, ended.signal).then(() => earlier)])
    } finally {
      ended.abort()
    }
  }

  const addressesWithCallback = callbackify(addressesOf)
  return (name, { all, ...options }, callback) => {
    addressesWithCallback(name, { ...options, all: true }, (error, addresses) => {
      if (error !== null) callback(error, '')
      else if (all === true) callback(null, addresses)
      else callback(null, addresses[0]?.address ?? '', addresses[0]?.family)
    })
  }
}

/** All connections of this process to its database and to Redis look names up with it. */
export const lookUpName = createNameLookup()
