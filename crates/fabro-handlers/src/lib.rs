//! The stages a workflow is made of: command, agent, prompt, human, wait, fan-in, sub-workflow.
