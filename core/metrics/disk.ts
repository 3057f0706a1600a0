/** Room on the disk of a folder. */
import { statfs } from 'node:fs/promises'
import { gaugeValue } from './collector.ts'
import type { GaugeSource } from './collector.ts'
import { defineMetrics, gauge } from './define.ts'

export const DISK_METRICS = defineMetrics('Disk', {
  free: gauge('skein_disk_free_bytes', 'Bytes that are free on the disk of the data folder', { aggregator: 'max' }),
  size: gauge('skein_disk_size_bytes', 'Size of the disk of the data folder', { aggregator: 'max' }),
})

export function diskGauges(folder: string): GaugeSource {
  return {
    name: 'disk',
    gauges: [DISK_METRICS.free, DISK_METRICS.size],
    async read() {
      const { bavail, blocks, bsize } = await statfs(folder)
      return [...gaugeValue(DISK_METRICS.free, bavail * bsize), ...gaugeValue(DISK_METRICS.size, blocks * bsize)]
    },
  }
}
