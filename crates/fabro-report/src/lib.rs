//! What a run did, for people and programs: inspect, explain, context, graph drawing.
