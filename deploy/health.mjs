/**
 * Health checks of the containers: exit code 0 healthy, 1 not, with one line that says why.
 *
 *   node deploy/health.mjs http http://127.0.0.1:8080/health   the answer is 200 and says "pass"
 *   node deploy/health.mjs tls proxy:7072 /path/to/ca.pem      a TLS handshake succeeds and the certificate is trusted
 *   node deploy/health.mjs connected 7071                      this container holds a connection to that port elsewhere
 */
import { readFileSync } from 'node:fs'
import { connect } from 'node:tls'

const DEADLINE_MS = 4000
/** State 01 of /proc/net/tcp (proc(5), include/net/tcp_states.h). */
const ESTABLISHED = '01'

const checks = {
  async http(url) {
    const response = await fetch(url, { signal: AbortSignal.timeout(DEADLINE_MS) })
    const { status } = await response.json()
    if (!response.ok || status !== 'pass') throw new Error(`${url} answered ${response.status}, status ${status}`)
  },

  async tls(address, caFile) {
    const colon = address.lastIndexOf(':')
    const host = address.slice(0, colon)
    const options = {
      host,
      port: Number(address.slice(colon + 1)),
      ca: readFileSync(caFile),
      ALPNProtocols: ['h2', 'http/1.1'],
    }
    await new Promise((resolve, reject) => {
      const socket = connect({ ...options, timeout: DEADLINE_MS }, () => resolve(socket.destroy()))
      socket.once('timeout', () => socket.destroy(new Error(`no handshake with ${address} in time`)))
      socket.once('error', reject)
    })
  },

  /** A worker listens on nothing: what shows its health is that its stream to the manager stands. */
  async connected(port) {
    const wanted = Number(port).toString(16).toUpperCase().padStart(4, '0')
    const rows = ['/proc/net/tcp', '/proc/net/tcp6'].flatMap((file) => {
      try {
        return readFileSync(file, 'utf8').split('\n').slice(1)
      } catch {
        return []
      }
    })
    const isUp = rows.some((row) => {
      const [, , remote = '', state] = row.trim().split(/\s+/)
      return state === ESTABLISHED && remote.endsWith(`:${wanted}`)
    })
    if (!isUp) throw new Error(`no connection to port ${port}`)
  },
}

const [kind = '', ...args] = process.argv.slice(2)
try {
  const check = checks[kind]
  if (check === undefined) throw new Error(`the first argument must be one of ${Object.keys(checks).join(', ')}`)
  await check(...args)
} catch (error) {
  process.stderr.write(`${error.cause?.message ?? error.message}\n`)
  process.exitCode = 1
}
