/** `skein overview`. */
import type { Call, Cli, Group } from '../shared/command.ts'
import type { Given } from '../shared/values.ts'

const DOMAIN: Call = { method: 'GET', service: 'domains', path: '/{domain!}/overview', query: ['window'] }
const PLATFORM: Call = { method: 'GET', service: 'domains', path: '/overview', query: ['window'] }

export const overview: Group = {
  name: 'overview',
  summary: 'what is going on in a domain, or on the platform',
  commands: [
    {
      words: '',
      args: '',
      tail: 'domain',
      summary:
        'show devices that are online, rates of messages, tasks, runs, workers, dead letters and the last changes',
      example: '--window 6h',
      flags: ['window'],
      run: (cli, given) => show(cli, given, DOMAIN),
    },
    {
      words: 'platform',
      args: '',
      tail: 'none',
      summary: 'show the same over all domains, for platform administrators',
      example: '',
      flags: ['window'],
      run: (cli, given) => show(cli, given, PLATFORM),
    },
  ],
}

type Step = { messages: number; records: number; messages_per_second: number; records_per_second: number }
type Series = { series?: unknown; step_seconds?: unknown }
type Letters = { total: number; sources: unknown[] }
type Shown = {
  clients: Series
  messages?: { series: Step[] }
  runs?: Series
  workers?: Series
  /** The dead letters of a domain. */
  dead_letters?: Letters
  changes?: unknown[]
}

const withoutSeries = ({ series: _series, step_seconds: _seconds, ...counts }: Series) => counts

/** A terminal has no room for series: it shows the present numbers, and what arrived in the window. */
async function show(cli: Cli, given: Given, call: Call): Promise<void> {
  const reply = await cli.call(call, given)
  if (!cli.output.isTerminal) return cli.show('data', reply)
  const { messages, dead_letters: letters, changes, ...all } = reply.value as Shown
  const rest = {
    ...all,
    clients: withoutSeries(all.clients),
    ...(all.runs === undefined ? {} : { runs: withoutSeries(all.runs) }),
    ...(all.workers === undefined ? {} : { workers: withoutSeries(all.workers) }),
    ...(letters === undefined ? {} : { dead_letters: letters.total }),
  }
  // The tables follow the numbers.
  const tables = {
    ...(letters === undefined || letters.sources.length === 0 ? {} : { dead_letter_sources: letters.sources }),
    ...(changes === undefined ? {} : { changes }),
  }
  if (messages === undefined) return cli.show('data', { ...reply, value: { ...rest, ...tables } })
  const last = messages.series.at(-1)
  const arrived = (name: 'messages' | 'records') => messages.series.reduce((sum, step) => sum + step[name], 0)
  const short = {
    messages_per_second: last?.messages_per_second,
    records_per_second: last?.records_per_second,
    messages: arrived('messages'),
    records: arrived('records'),
  }
  cli.show('data', { ...reply, value: { ...rest, arrived: short, ...tables } })
}
