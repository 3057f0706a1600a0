import { defineConfig } from 'vitest/config'
import { TEST_WORKERS } from './test/harness/ports.ts'
import { PROJECTS } from './test/suites/projects.ts'

export default defineConfig({
  test: {
    // More than the two processors of the machine of `.ci/run`, because most tests wait most of the time.
    maxWorkers: TEST_WORKERS,
    projects: PROJECTS,
  },
})
