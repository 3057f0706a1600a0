import { expect, test } from 'vitest'
import { counter, defineMetrics, gauge } from './define.ts'
import { mergeMetrics } from './merge.ts'
import { createRegistry } from './registry.ts'

const METRICS = defineMetrics('Test', {
  done: counter('test_done_total', 'Done # HELP or not', { kind: 'a or b' }),
  depth: gauge('test_depth_meters', 'Depth'),
})

test('each metric is shown once, with the samples of every process under its label', async () => {
  METRICS.done.add({ kind: 'a' }, 2)
  const texts = await Promise.all(['1', '2'].map((process) => createRegistry([METRICS.set], process).metrics()))
  const other = '# HELP test_other Other\n# TYPE test_other gauge\ntest_other{process="3"} 4\n'
  const lines = (await mergeMetrics([...texts, '', other])).split('\n')
  const at = lines.indexOf('# HELP test_done_total Done # HELP or not')
  expect(lines.slice(at, at + 4)).toEqual([
    '# HELP test_done_total Done # HELP or not',
    '# TYPE test_done_total counter',
    'test_done_total{kind="a",process="1"} 2',
    'test_done_total{kind="a",process="2"} 2',
  ])
  expect(lines.filter((line) => line.startsWith('# HELP test_depth_meters'))).toHaveLength(1)
  expect(lines).toContain('test_other{process="3"} 4')
  const heads = lines.filter((line) => line.startsWith('# TYPE ')).map((line) => line.split(' ')[2])
  expect(new Set(heads).size).toBe(heads.length)
})
