/** The faults of stage 3 of docs/scale.md that take long. `npm run cluster` runs them after the short ones. */
import { describe, test } from 'vitest'
import { hasClusterPrograms } from './database-cluster.ts'
import { LASTING } from './faults.ts'
import { startCluster } from './start.ts'

describe.runIf(hasClusterPrograms())('faults that last', () => {
  const cluster = startCluster()

  test.for(LASTING)('$name', async (fault) => {
    await cluster().suffer(fault)
  })
})
