//! Which handler runs which kind of stage.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use fabro_engine::{Clock, Handler, Stage, StageEnd};
use fabro_events::EventSink;
use fabro_gate::Interviewer;
use fabro_llm::ModelSource;
use fabro_sandbox::artifacts::Rules;
use fabro_sandbox::{Exec, marks_ended, stages_within_limit};
use fabro_types::{Failure, FailureClass, NodeKind};
use tokio::sync::Semaphore;

use crate::artifacts::Artifacts;
use crate::{
    Agents, ChildWorkflows, CommandHandler, DryHandler, FanInHandler, HumanHandler, LlmHandler,
    ModelDefaults, SubWorkflowHandler, WaitHandler, WorkTree,
};

/// Hands every stage to the handler of its kind.
pub struct Registry {
    command: Box<dyn Handler>,
    llm: Arc<LlmHandler>,
    human: HumanHandler,
    wait: Box<dyn Handler>,
    fan_in: FanInHandler,
    sub_workflow: SubWorkflowHandler,
    tree: Arc<WorkTree>,
    artifacts: Option<Artifacts>,
    /// As many as open files allow.
    places: Arc<Semaphore>,
}

/// What the handlers of a run are built from; taken apart at once by [`Registry::new`].
pub struct Services {
    /// Runs scripts; `None` in a dry run, which executes nothing.
    pub exec: Option<Arc<dyn Exec>>,
    /// Variables added to every script's environment.
    pub env: Vec<(String, String)>,
    /// The model of each stage.
    pub models: ModelSource,
    /// What to ask for when a node names no model.
    pub defaults: ModelDefaults,
    /// What agents work with.
    pub agents: Agents,
    /// Answers gates.
    pub interviewer: Arc<dyn Interviewer>,
    /// The name recorded with the interviewer's answers: the user of the operating system.
    pub user: String,
    /// Loads sub-workflows.
    pub children: Arc<dyn ChildWorkflows>,
    /// Receives the events of sub-workflows.
    pub sink: Arc<dyn EventSink>,
    /// What counts as an artifact that is kept; `None` when none is.
    pub artifacts: Option<Rules>,
    /// The time, for sub-workflows and prices.
    pub clock: Arc<dyn Clock>,
}

impl Registry {
    /// The handlers of one run.
    pub fn new(services: Services) -> Arc<Self> {
        let Services { agents, clock, sink, .. } = services;
        let tree = Arc::new(WorkTree::default());
        let places = stages_within_limit().min(Semaphore::MAX_PERMITS);
        let redactor = agents.redactor.clone();
        let rules = services.artifacts;
        let artifacts = rules.map(|rules| Artifacts::new(rules, redactor.clone()));
        let (command, wait): (Box<dyn Handler>, Box<dyn Handler>) = match services.exec {
            Some(exec) => {
                let tree = Arc::clone(&tree);
                let command = CommandHandler::new(exec, services.env, redactor.clone(), tree);
                (Box::new(command), Box::new(WaitHandler))
            }
            None => (Box::new(DryHandler), Box::new(DryHandler)),
        };
        let llm = Arc::new(LlmHandler::new(
            services.models,
            services.defaults,
            agents,
            Arc::clone(&tree),
            Arc::clone(&clock),
        ));
        Arc::new_cyclic(|own: &Weak<Self>| {
            let own: Weak<dyn Handler> = own.clone();
            Self {
                command,
                sub_workflow: SubWorkflowHandler::new(
                    own,
                    services.children,
                    llm.preambles.clone(),
                    sink,
                    clock,
                ),
                fan_in: FanInHandler::new(Arc::clone(&llm)),
                llm,
                human: HumanHandler::new(services.interviewer, services.user, redactor),
                wait,
                tree,
                artifacts,
                places: Arc::new(Semaphore::new(places)),
            }
        })
    }

    /// Stages of sub-workflows are run by this handler, which hands them on to this registry.
    pub fn run_sub_workflows_by(&self, handler: &Arc<dyn Handler>) {
        self.sub_workflow.run_stages_by(Arc::downgrade(handler));
    }

    /// Knows which files stages touch.
    pub fn work_tree(&self) -> Arc<WorkTree> {
        Arc::clone(&self.tree)
    }

    fn handler(&self, kind: NodeKind) -> Option<&dyn Handler> {
        Some(match kind {
            NodeKind::Agent | NodeKind::Prompt => &*self.llm,
            NodeKind::Command => &*self.command,
            NodeKind::Human => &self.human,
            NodeKind::Wait => &*self.wait,
            NodeKind::FanIn => &self.fan_in,
            NodeKind::ManagerLoop => &self.sub_workflow,
            _ => return None,
        })
    }
}

#[async_trait]
impl Handler for Registry {
    /// Gates and waits open no files, and a sub-workflow waits for its own stages.
    fn places(&self, kind: NodeKind) -> Option<Arc<Semaphore>> {
        let opens_none = matches!(kind, NodeKind::Human | NodeKind::Wait | NodeKind::ManagerLoop);
        (!opens_none).then(|| Arc::clone(&self.places))
    }

    async fn execute(&self, stage: Stage) -> StageEnd {
        if let Some(guard) = &self.llm.agents.guard
            && let Err(failure) = guard.stage(&stage).await
        {
            return failure.into();
        }
        let kind = stage.spec().kind;
        let Some(handler) = self.handler(kind) else {
            let message = format!("no handler runs nodes of type {}", kind.as_str());
            return Failure::new(FailureClass::Structural, message).into();
        };
        let changes_files = !matches!(kind, NodeKind::Human | NodeKind::Wait);
        let _running = changes_files.then(|| self.tree.start());
        let artifacts = self.artifacts.as_ref();
        let before = match artifacts {
            Some(artifacts) => artifacts.before(&stage).await,
            None => None,
        };
        let cancel = stage.cancel.clone();
        if kind != NodeKind::Human {
            // Those of an agent that was dropped at its timeout.
            marks_ended().await;
        }
        let mut end = handler.execute(stage).await;
        let in_time = !cancel.is_cancelled();
        // What an agent left must not run beside the next stage, and writes no more artifacts.
        marks_ended().await;
        if let Some((artifacts, before)) = artifacts.zip(before) {
            artifacts.after(before, &end).await;
        }
        if let StageEnd::Finished(finished) = &mut end {
            let redactor = &self.llm.agents.redactor;
            // Keeping artifacts takes time too.
            finished.in_time = in_time;
            let outcome = &mut finished.outcome;
            // What a file is called may be as secret as what is in it.
            redactor.redact_all(&mut outcome.files_touched);
            if let Some(failure) = &mut outcome.failure
                && matches!(kind, NodeKind::Agent | NodeKind::Prompt)
            {
                redactor.redact_all(std::slice::from_mut(&mut failure.message));
            }
        }
        end
    }
}
