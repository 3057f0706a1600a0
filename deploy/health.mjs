/**
 * Health checks of the containers: exit code 0 ready or degraded, 1 not ready, with one line that says why.
 *
 *   node deploy/health.mjs ready http://127.0.0.1:8080/ready             a program with an HTTP listener
 *   node deploy/health.mjs ready https://proxy:7072/ready /path/ca.pem   the same over TLS, with the certificate that is trusted
 *   node deploy/health.mjs worker /var/lib/skein/worker/status.sock      a worker, which listens on a socket of its folder alone
 *
 * `--wait=120` before the word asks again for so many seconds, for a supervisor that waits for the start.
 */
import { readFileSync } from 'node:fs'
import { get as getPlain } from 'node:http'
import { get as getTls } from 'node:https'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'

const DEADLINE_MS = 4000
const PAUSE_MS = 500
const MAX_ANSWER_CHARS = 1024 * 1024

/** Everything that the stream says until its end. */
function textOf(stream) {
  return new Promise((resolve, reject) => {
    let text = ''
    stream.setEncoding('utf8')
    stream.on('data', (data) => {
      text += data
      if (text.length > MAX_ANSWER_CHARS) stream.destroy(new Error('the answer is too long'))
    })
    stream.once('end', () => resolve(text))
    stream.once('error', reject)
  })
}

/** Throws with everything that is lacking, unless the report says that the program can serve. */
function requireReady(name, text) {
  let report
  try {
    report = JSON.parse(text)
  } catch {
    throw new Error(`${name} gave no readiness report`)
  }
  const { status, checks = {} } = report ?? {}
  if (status === 'ready' || status === 'degraded') return
  const lacking = Object.entries(checks).filter(([, check]) => check.status === 'unavailable')
  const reasons = lacking.map(([check, { reason }]) => `${check}: ${reason}`).join('; ')
  throw new Error(`${name} is ${status ?? 'without a status'}${reasons === '' ? '' : ` (${reasons})`}`)
}

const checks = {
  async ready(url, caFile) {
    const get = url.startsWith('https:') ? getTls : getPlain
    const ca = caFile === undefined || caFile === '' ? {} : { ca: readFileSync(caFile) }
    const text = await new Promise((resolve, reject) => {
      const request = get(url, { ...ca, signal: AbortSignal.timeout(DEADLINE_MS) }, (response) => {
        void textOf(response).then(resolve, reject)
      })
      request.once('error', reject)
    })
    requireReady(url, text)
  },

  async worker(path) {
    const socket = connect(path)
    socket.setTimeout(DEADLINE_MS, () => socket.destroy(new Error('the worker did not answer in time')))
    const text = await textOf(socket)
    requireReady('the worker', JSON.stringify(JSON.parse(text).readiness))
  },
}

/** Throws what the last try threw when the time is over. */
async function waitFor(check, args, waitMs) {
  const end = performance.now() + waitMs
  for (;;) {
    try {
      return await check(...args)
    } catch (error) {
      if (performance.now() > end) throw error
    }
    await sleep(PAUSE_MS)
  }
}

try {
  const { values, positionals } = parseArgs({
    options: { wait: { type: 'string', default: '0' } },
    allowPositionals: true,
  })
  const [kind = '', ...args] = positionals
  const check = checks[kind]
  if (check === undefined) throw new Error(`the first argument must be one of ${Object.keys(checks).join(', ')}`)
  await waitFor(check, args, Number(values.wait) * 1000)
} catch (error) {
  process.stderr.write(`${error.cause?.message ?? error.message}\n`)
  process.exitCode = 1
}
