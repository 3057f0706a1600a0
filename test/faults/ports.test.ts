/**
 * A node that is starting or stopping refuses devices instead of letting them wait: its ports open when everything behind them can
 * answer, and close before anything behind them stops.
 */
import { expect, test } from 'vitest'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { createInstallation, launch } from '../harness/whole.ts'

const READY_DEADLINE_MS = 120_000

type LogLine = { name: string; msg: string; part?: string }

function isLogLine(line: string): boolean {
  return line.startsWith('{') && line.endsWith('}')
}

test.each([
  ['programs/api.ts', 'api', 'the platform is at'],
  ['programs/all.ts', 'start', 'is running'],
])('%s opens its ports last and closes them first', async (program, name, readyText) => {
  const [mqtt, mqtts, coap] = await freePorts(3)
  using installation = await createInstallation({
    SKEIN_API_PROCESSES: '1',
    SKEIN_LOG_LEVEL: 'debug',
    SKEIN_MQTT_PORT: String(mqtt),
    SKEIN_MQTTS_PORT: String(mqtts),
    SKEIN_COAP_PORT: String(coap),
  })
  const whole = launch(installation, program)
  await until(() => whole.output().includes(readyText), `${program} runs: ${whole.output()}`, READY_DEADLINE_MS)
  whole.kill('SIGTERM')
  expect(await whole.ended).toBe(0)
  await whole.silent
  const lines = whole.output().split('\n').filter(isLogLine)
  // `npm start` prints the lines of its worker too.
  const own = lines.map((line) => JSON.parse(line) as LogLine).filter((line) => line.name === name)
  const partsThat = (msg: string) => own.flatMap((line) => (line.msg === msg ? (line.part ?? []) : []))
  const ports = ['MQTT listeners', 'CoAP', 'HTTP listeners']
  expect(partsThat('started').slice(-ports.length - 1)).toEqual(['HTTP application', ...ports])
  expect(partsThat('stopped').slice(0, ports.length + 1)).toEqual([...ports.toReversed(), 'HTTP application'])
})
